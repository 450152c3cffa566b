"""Where a rank is late, or a loss is NaN, and nothing says why: what one rank, or its host, alone printed before."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec.structs import replace

from whichrank.facts.messages import recognise
from whichrank.facts.phases import activity_in
from whichrank.facts.taxonomy import causes
from whichrank.flows.diagnose.spoken_lines import MENTION, Line, Speaker, SpokenLines
from whichrank.model.contracts import Item
from whichrank.model.evidence import Ref
from whichrank.model.grades import SUPPORTED
from whichrank.model.verdict import Verdict
from whichrank.records.events.run_state import LossNonfinite
from whichrank.records.second_looks import OwnLine
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.reported_mismatches import mismatches
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state.known_messages import has_run

_ANOTHER_CALL = "conditional-collective"
_SIZES, _NAN = "size-mismatch", "nan-origin"
_IN_A_CALL = (_ANOTHER_CALL, _SIZES)
_LATE = ("rank-stuck-in-user-code", "collective-order", *_IN_A_CALL)
"""Besides the generic causes: they say that a rank went another way, not why."""
_OF_LIBRARIES = re.compile(r"Traceback|NCCL INFO|\[[Rr]ank \d+\] ")
"""What torch and NCCL print on their own account."""
_SHARES = re.compile(
    r"(?i)\b(?:samples?|batch(?:es)?|steps?|shards?|files?|records?|examples?|tars?|tokens"
    r"|stapel|beispiele|schritte|échantillons|lots|étapes|muestras|lotes|amostras|campioni|lotti|passi|образцов|примеров"
    r"|батчей|шагов)\b|样本|批次|サンプル|バッチ|샘플|배치"
)
_MAKES_NAN = re.compile(
    r"(?i)\b(?:(?:is |are )?all[- ]zeros?|(?:mean|sum) (?:of|over) (?:an? )?(?:empty|0|no)|0 (?:valid )?tokens"
    r"|0 of \d{1,9} (?:\w{1,12} ){0,3}(?:tokens|labels|targets|valid)"
    r"|empty slice|di(?:vide|vision) by zero|invalid value|overflow\w*|underflow\w*|log\(0"
    r"|std(?:dev)?(?: is|=|:)? ?0(?:\.0{1,6})?(?![.\d])|no valid labels?)"
)
"""What makes a mean, a root or a quotient one that is not a number."""
_STEP = re.compile(r"(?i)\W{0,4}(?:step|iter(?:ation)?|it|batch|epoch)[ =:#_]{0,3}(\d{1,12})\b")
_BATCH = re.compile(r"(?i)batch")
_COUNTED = re.compile(
    rf"{_SHARES.pattern}|(?i:^(?:n|num|len|mb|mbs|micro\w{{0,24}}|\w{{0,24}}count\w{{0,24}}|chunks?|rows|items|seqs?)$)"
)
"""How programs call how much they have to do."""
_NAMED_VALUE = re.compile(r"([A-Za-z][\w.-]{0,30})[\"']?\s?[=:]\s?(\d{1,9})(?![\w.:/-])")
_ROUNDS_BEFORE, _ROUNDS_ASKED = 2, 16
_FAR = 4
_AGREE = 3
"""So many ranks that say the same make one that says otherwise stand out."""
_LEFT = re.compile(
    r"(?i)\b(?:epoch|train(?:ing)?|eval(?:uation)?|valid(?:ation)?|pass|loop|loader|dataset)\b[^\n]{0,30}"
    r"\b(?:done|over|end(?:s|ed)?|finished|complete[ds]?|exhausted)\b"
    r"|\b(?:left|leaving|end of|out of)\b[^\n]{0,30}"
    r"\b(?:loop|epoch|data|batch(?:es)?|loader|buckets?|shards?|samples?|stream|iterator|sampler)\b|on_train_epoch_end"
)
_OF_HOSTS = ("cpu-starved", "storage-stall")
"""What all ranks of a host have together."""
_MOST_RANKS, _FEWEST = 8, 2
_NEARLY_ALL = 0.75


def own_lines(items: Iterable[Item], case: Case, verdict: Verdict) -> list[OwnLine]:
    """What only the late ranks or their hosts printed and what tells what they were in, the last first."""
    if verdict.cause == _NAN:
        return _before_nan(case, SpokenLines(items, case.people, case.world)) if not verdict.culprits.ranks else []
    ended = causes()[verdict.cause].role == "ending" and verdict.confidence < SUPPORTED
    if not (causes()[verdict.cause].role == "generic" or verdict.cause in _LATE or ended):
        return []
    spoken = SpokenLines(items, case.people, case.world)
    if ended and not _parted(spoken):
        return []
    named = verdict.culprits.ranks or verdict.culprits.candidates
    suspects = set(named) or _elsewhere(case) or _not_timed_out(case, spoken) or _parted(spoken)
    behind = _behind(spoken, suspects)
    if behind is not None:
        suspects = set(behind[0])
    if not suspects and verdict.cause == _SIZES:
        suspects = _skipped(case, spoken)
    found = _why_it_left([line for rank in sorted(suspects) for line in _of(rank, case, spoken, suspects)])
    if verdict.cause == _SIZES and not named:  # whoever left out a call meets the others in the next one
        return [line for line in found if line.cause == _ANOTHER_CALL]
    in_a_call = verdict.cause in _IN_A_CALL or suspects <= case.ranks_timed_out
    if in_a_call:  # only that their loop had ended says why
        return [line for line in found if line.cause == "uneven-inputs"]
    if behind is not None and not found:
        missing = activity_in(behind[1].text) or verdict.cause
        found = [replace(_quoted(case, rank, behind[1], missing), missing=True) for rank in behind[0]]
    found = found or [line for rank in sorted(suspects) if (line := _still_at_it(rank, case, spoken)) is not None]
    found = found or [line for rank in sorted(suspects) if (line := _a_round_behind(rank, case, spoken)) is not None]
    found = found or [
        line for rank in sorted(_parted(spoken)) if (line := _state_at_last(rank, case, spoken)) is not None
    ]
    alone = len({line.rank for line in found}) == 1
    return found if named or behind is not None or alone else []


def _why_it_left(found: list[OwnLine]) -> list[OwnLine]:
    """Without those that only say that a rank left, where it says why: its data came to an end."""
    ran_out = {line.rank for line in found if line.cause == "uneven-inputs"}
    return [line for line in found if line.cause != "teardown-hang" or line.rank not in ran_out]


def _elsewhere(case: Case) -> set[int]:
    """Those that timed out in a call so small that they are at another place of the program."""
    return next((set(found.least) for found in mismatches(case) if found.least), set())


def _not_timed_out(case: Case, spoken: SpokenLines) -> set[int]:
    """Where some ranks say that they timed out: the others, of which nothing shows that they waited."""
    waited = case.ranks_timed_out
    known = {*spoken.places, *range(max(waited, default=-1) + 1), *range(case.world)}
    return known - waited if waited and len(known - waited) <= max(_MOST_RANKS, len(known) // 2) else set()


def _before_nan(case: Case, spoken: SpokenLines) -> list[OwnLine]:
    """What one rank alone said of numbers that can't be divided by, or are too large."""
    first: dict[str, int] = {}
    for event in case.events(LossNonfinite):
        first[event.ref.source] = min(event.line, first.get(event.ref.source, event.line))
    before = (line for line in spoken.lines if line.number <= first.get(line.source, line.number))
    alone = (line for line in before if spoken.speakers[line.shape] == {line.speaker})
    odd: dict[int, Line] = {}
    for line in alone:
        if isinstance(line.speaker.name, int) and _MAKES_NAN.search(line.text):
            odd[line.speaker.name] = line
    return [_quoted(case, rank, line, _NAN) for rank, line in odd.items()] if len(odd) == 1 < len(spoken.ranks) else []


def _parted(spoken: SpokenLines) -> set[int]:
    """The few that did not come to the line, of one step, with which nearly all other ranks end."""
    last = {line.speaker.name: line for line in spoken.lines if isinstance(line.speaker.name, int)}
    ends = Counter((line.beginning, line.numbers[:1]) for line in last.values())
    common, often = ends.most_common(1)[0] if last else (("", ()), 0)
    if often < max(_AGREE - 1, _NEARLY_ALL * len(last)) or len(last) < _AGREE or not common[1]:
        return set()
    others = {rank: line for rank, line in last.items() if (line.beginning, line.numbers[:1]) != common}
    said = {rank for rank, lines in spoken.rounds[common[0]].items() if any(x.numbers[:1] == common[1] for x in lines)}
    ahead = any(_counter(line) > _value(common[1][0]) for line in spoken.lines if line.speaker.name in others)
    return set() if ahead or said & others.keys() else set(others)


def _skipped(case: Case, spoken: SpokenLines) -> set[int]:
    """The one rank that says that it left something out, and goes on."""
    ranks = [rank for rank in spoken.ranks if isinstance(rank, int)]
    found = {r for r in ranks if any(line.cause == _ANOTHER_CALL for line in _of(r, case, spoken, {r}))}
    return found if len(found) == 1 else set()


def _counter(line: Line) -> int:
    """The step that a line is about, if its first number is one."""
    step = _STEP.match(line.text)
    return int(step[1]) if step else -1


def _behind(spoken: SpokenLines, suspects: Collection[int]) -> tuple[tuple[int, ...], Line] | None:
    """The suspects that never printed what nearly all other ranks did last, and that line of another rank."""
    ranks = spoken.ranks
    newest: dict[str, Line] = {}
    for line in reversed(spoken.lines):
        newest.setdefault(line.beginning, line)
    for line in newest.values():
        said = spoken.told.get(line.beginning, {}).keys()
        missing = tuple(sorted(rank for rank in suspects if rank in ranks and rank not in said))
        if missing and len(said) >= max(3, _NEARLY_ALL * len(ranks)) and set(missing) == ranks - said:
            return missing, line
    return None


def _still_at_it(rank: int, case: Case, spoken: SpokenLines) -> OwnLine | None:
    """The last line in which a rank counts what all others have counted to the end, and it has not."""
    for by_rank in spoken.counted.values():
        if rank not in by_rank or by_rank.keys() != spoken.ranks or len(by_rank) < 2:
            continue
        line, done, all_of_it = by_rank[rank]
        others = [(at, end) for other, (_, at, end) in by_rank.items() if other != rank]
        if done < all_of_it and all((at, end) == (all_of_it, all_of_it) for at, end in others):
            cause = "rank-stuck-in-user-code" if has_run(case) else "rank-stuck-in-preprocessing"
            return replace(_quoted(case, rank, line, cause), behind=True)
    return None


def _a_round_behind(rank: int, case: Case, spoken: SpokenLines) -> OwnLine | None:
    """What a rank said last, where all others have said once more what comes behind it in every round."""
    mine = next((line for line in reversed(spoken.lines) if line.speaker == Speaker("rank", rank)), None)
    cause = activity_in(mine.text) if mine is not None else None
    if mine is None or cause is None:
        return None
    for by_rank in spoken.rounds.values():
        often = {len(lines) for other, lines in by_rank.items() if other != rank}
        everybody = by_rank.keys() == spoken.ranks and len(by_rank) > _FEWEST
        if everybody and rank in by_rank and often == {len(by_rank[rank]) + 1}:
            return replace(_quoted(case, rank, mine, cause), behind=True)
    return None


def _state_at_last(rank: int, case: Case, spoken: SpokenLines) -> OwnLine | None:
    """What a rank says that it is in, to the end, where nearly all others say that they are in another thing."""
    mine = next((line for line in reversed(spoken.lines) if line.speaker == Speaker("rank", rank)), None)
    cause = activity_in(mine.text) if mine is not None and case.stands_at is not None else None
    return replace(_quoted(case, rank, mine, cause), behind=True) if mine is not None and cause is not None else None


def _of(rank: int, case: Case, spoken: SpokenLines, suspects: Collection[int]) -> Iterator[OwnLine]:
    """What this rank or its host alone printed, the last first; then what is said of it."""
    me, places = Speaker("rank", rank), _places(rank, case, spoken, suspects)
    for line in reversed(spoken.lines):
        if line.speaker != me and line.speaker not in places:
            continue
        cause = _told(line, spoken)
        if cause == "rank-stuck-in-evaluation" and line.speaker == me and _left_the_loop(line, spoken):
            yield _quoted(case, rank, line, "uneven-inputs")  # it says that its evaluation is over
        elif cause is not None:
            yield _quoted(case, rank, line, cause)
            if line.speaker == me and _left_the_loop(line, spoken):
                yield _quoted(case, rank, line, "uneven-inputs")
        elif line.speaker == me and (cause := _told_by_host(line, case, spoken)) is not None:
            for same in (other for other in spoken.lines if other.shape == line.shape):
                if isinstance(same.speaker.name, int):
                    yield replace(_quoted(case, same.speaker.name, same, cause), of_host=True)
        elif line.speaker == me and (_counts_differ(line, spoken) or _left_the_loop(line, spoken)):
            yield _quoted(case, rank, line, "uneven-inputs")
        elif line.speaker == me and (name := _differs_at_last(line, spoken)) is not None:
            yield _quoted(case, rank, line, "uneven-inputs" if _COUNTED.search(name) else _ANOTHER_CALL)
    of_it = [line for line in spoken.mentions if (said := MENTION.search(line.text)) and int(said[1]) == rank]
    told = [(line, cause) for line in of_it if (cause := activity_in(line.text)) is not None]
    if told:  # what came before the last may be over
        yield _quoted(case, rank, *told[-1])


def _places(rank: int, case: Case, spoken: SpokenLines, suspects: Collection[int]) -> set[Speaker]:
    """The host and the task of a rank, unless every rank is there; a rank that is silent is on a host without one."""
    host = case.people.host_of(rank)
    known = spoken.places.get(rank, set()) | ({Speaker("host", short_name(host))} if host else set())
    others = [places for other, places in spoken.places.items() if other not in suspects]
    own = {place for place in known if not others or not all(place in places for places in others)}
    return own or (spoken.hosts() if not spoken.places.get(rank) else set())


def _told(line: Line, spoken: SpokenLines) -> str | None:
    """The cause that a line speaks of which nobody else printed, or which all others printed with other numbers."""
    return _cause(line) if spoken.speakers[line.shape] == {line.speaker} or _alone_with(line, spoken) else None


def _alone_with(line: Line, spoken: SpokenLines) -> bool:
    """Whether all others printed the line once, with one number that is the same on all of them and not here."""
    told = spoken.told.get(line.beginning, {})
    mine, others = line.numbers, [said for rank, said in told.items() if rank != line.speaker.name]
    if line.speaker.kind != "rank" or len(others) < _AGREE or any(len(said) != len(mine) for said in others):
        return False
    return any(len({said[at] for said in others}) == 1 and others[0][at] != number for at, number in enumerate(mine))


def _told_by_host(line: Line, case: Case, spoken: SpokenLines) -> str | None:
    """The cause of a whole host that a line speaks of, where all of its ranks printed it, and nobody elsewhere."""
    host = case.people.host_of(line.speaker.name) if isinstance(line.speaker.name, int) else None
    fellows = set(case.people.ranks_on(host)) if host else set()
    if spoken.speakers[line.shape] != {Speaker("rank", rank) for rank in fellows} or fellows >= spoken.ranks:
        return None
    return cause if (cause := _cause(line)) in _OF_HOSTS else None


def _cause(line: Line) -> str | None:
    if _OF_LIBRARIES.match(line.text):
        return None
    known = [s for s, _ in recognise(line.text)]
    if any(s.role in ("root", "harmless") for s in known):
        return None  # its own rule has judged it
    doing = next((s.cause for s in known if s.role == "activity" and s.cause in causes()), None)
    return doing or activity_in(line.text)


def _counts_differ(line: Line, spoken: SpokenLines) -> bool:
    """Whether all others said a larger number, in a line about shares of the data: the same one, or numbers that lie
    much closer together, or that are the same where they are counted in batches of a size that all of them name."""
    if not _SHARES.search(line.text):
        return False
    mine, others, usual = line.numbers, *_in_its_round(line, spoken)
    shared = min(map(len, (mine, *others)))
    if len(others) < 2:
        return False
    rows = [tuple(_value(said[at]) for said in (mine, *others)) for at in range(shared) if usual is None or at in usual]
    sizes = [row[0] for row in rows if len(set(row)) == 1 and row[0] > 1] if _BATCH.search(line.text) else []
    return any(_is_less(row) or any(_is_less([n // size for n in row]) for size in sizes) for row in rows)


def _in_its_round(line: Line, spoken: SpokenLines) -> tuple[list[tuple[str, ...]], set[int] | None]:
    """The numbers that the others said when this was said for the last time: in their last line, if all said it as
    often; and the places of those in which this rank was not far below in the round before, if there was one."""
    by_rank = spoken.rounds.get(line.beginning, {})
    mine = by_rank.get(line.speaker.name, [])
    if not mine or mine[-1] != line:
        return [], None
    others = [said for rank, said in by_rank.items() if rank != line.speaker.name and len(said) == len(mine)]
    last = [said[-1].numbers for said in others]
    if len(mine) == 1 or not others:
        return last, None
    before = [said[-2].numbers for said in (mine, *others)]
    return last, {at for at in range(min(map(len, before))) if not _is_less([_value(each[at]) for each in before])}


def _is_less(row: Sequence[int]) -> bool:
    """Whether the first number lies far below all others, compared with how far those lie apart."""
    mine, *others = row
    return min(others) - mine > _FAR * (max(others) - min(others))


def _differs_at_last(line: Line, spoken: SpokenLines) -> str | None:
    """The name of a value that was the same on all ranks in the rounds before, and in its last one is not on this."""
    by_rank = spoken.rounds.get(line.beginning, {})
    mine = by_rank.get(line.speaker.name, [])
    others = [said for rank, said in by_rank.items() if rank != line.speaker.name]
    last = len(mine) - 1
    if last < _ROUNDS_BEFORE or mine[last] != line or len(others) < 2 or any(len(said) <= last for said in others):
        return None
    at_last, theirs = _named_values(line), [_named_values(said[last]) for said in others]
    for name, value in at_last.items():
        if len({values.get(name) for values in theirs}) != 1 or theirs[0].get(name) in (None, value):
            continue
        before = range(max(0, last - _ROUNDS_ASKED), last)
        if all(len({_named_values(said[at]).get(name) for said in (mine, *others)}) == 1 for at in before):
            return name
    return None


def _named_values(line: Line) -> dict[str, str]:
    return dict(_NAMED_VALUE.findall(line.text))


def _value(number: str) -> int:
    return int(number, 16 if number[:2] in ("0x", "0X") else 10)


def _left_the_loop(line: Line, spoken: SpokenLines) -> bool:
    """Whether this rank alone says that its epoch or its data came to an end."""
    return spoken.speakers[line.shape] == {line.speaker} and _LEFT.search(line.text) is not None


def _quoted(case: Case, rank: int, line: Line, cause: str) -> OwnLine:
    ref = Ref(line.source, f"line {line.number}", line.text.strip()[:300], rank, case.people.host_of(rank))
    return OwnLine(rank, cause, ref, line.number, line.speaker != Speaker("rank", rank))
