"""Where a rank is late and nothing says why: what it, or its host, printed before that, and no other rank did."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from whichrank.evidence.text.prefixes import clock_of, hint_of_path, listen
from whichrank.evidence.text.tail import tail
from whichrank.evidence.text.text_file import is_text
from whichrank.facts.messages import recognise
from whichrank.facts.phases import activity_in
from whichrank.facts.taxonomy import causes
from whichrank.model.contracts import Item
from whichrank.model.evidence import Ref
from whichrank.model.verdict import Verdict
from whichrank.records.events.watchdog import WatchdogTimeout
from whichrank.records.own_line import OwnLine
from whichrank.timeline.case import Case
from whichrank.timeline.identity.who import short_name

_LATE = ("rank-stuck-in-user-code", "collective-order")
"""Besides the generic causes: they say that a rank went another way, not why."""
_LARGEST = 4 << 20
"""Of a longer file the end is read."""
_LONGEST = 400
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_NOT_SAID = re.compile(r'\s{0,40}File "|Traceback|\s{0,8}at |#\d{1,3} |NCCL INFO|\[[Rr]ank \d+\] ')
"""Frames, and what torch and NCCL print on their own account."""
_TOO_LATE = (b"Watchdog caught collective", b"Received a dump signal", b"Timed out waiting", b"terminate called after")
"""What ranks print when the others have waited long enough: what comes after it is a consequence."""
_MOST_RANKS, _MOST_LINES = 8, 60_000
_NEARLY_ALL = 0.75

Speaker = tuple[str, object]


@dataclass(slots=True)
class _Heard:
    """The lines of all files with who printed them."""

    lines: list[tuple[str, int, str, Speaker]] = field(default_factory=list)
    speakers: dict[str, set[Speaker]] = field(default_factory=dict)
    places: dict[int, set[Speaker]] = field(default_factory=dict)
    """By rank: the hosts and tasks that it printed as."""

    def quoted(self, rank: int, host: str | None, place: tuple[str, int, str, Speaker], cause: str) -> OwnLine:
        label, number, text, speaker = place
        ref = Ref(label, f"line {number}", text.strip()[:300], rank, host)
        return OwnLine(rank, cause, ref, number, speaker != ("rank", rank))


def own_lines(items: Iterable[Item], case: Case, verdict: Verdict) -> list[OwnLine]:
    """What only the late ranks or their hosts printed and what tells what they were in, the last first."""
    if not (causes()[verdict.cause].role == "generic" or verdict.cause in _LATE):
        return []
    heard = _Heard()
    for item in items:
        _hear(item, heard)
    named = verdict.culprits.ranks or verdict.culprits.candidates
    suspects = set(named) or _not_timed_out(case, heard)
    behind = _behind(heard, suspects)
    if behind is not None:
        suspects = set(behind[0])
    found = [line for rank in sorted(suspects) for line in _of(rank, case, heard, suspects)]
    if behind is not None and not found:
        cause = activity_in(behind[1][2]) or verdict.cause
        found = [
            replace(heard.quoted(rank, case.people.host_of(rank), behind[1], cause), missing=True) for rank in behind[0]
        ]
    telling = {line.rank for line in found}
    return found if named or behind is not None or len(telling) == 1 else []


def _not_timed_out(case: Case, heard: _Heard) -> set[int]:
    """Where some ranks say that they timed out: the others, of which nothing shows that they waited."""
    waited = {event.rank for event in case.events(WatchdogTimeout) if event.rank is not None}
    known = {*heard.places, *range(max(waited, default=-1) + 1), *range(case.world)}
    return known - waited if waited and len(known - waited) <= max(_MOST_RANKS, len(known) // 2) else set()


def _behind(heard: _Heard, suspects: Collection[int]) -> tuple[tuple[int, ...], tuple[str, int, str, Speaker]] | None:
    """The suspects that never printed what nearly all other ranks did last, and that line of another rank."""
    ranks = (
        {rank for kind, rank in set().union(*heard.speakers.values()) if kind == "rank"} if heard.speakers else set()
    )
    for place in reversed(heard.lines):
        said = {rank for kind, rank in heard.speakers[_shape(place[2])] if kind == "rank"}
        missing = tuple(sorted(rank for rank in suspects if rank in ranks and rank not in said))
        enough = len(said) >= max(3, _NEARLY_ALL * len(ranks)) and len(ranks - said) <= _MOST_RANKS
        if enough and missing and set(missing) == ranks - said:
            return missing, place
    return None


def _of(rank: int, case: Case, heard: _Heard, suspects: Collection[int]) -> Iterator[OwnLine]:
    """What this rank or its host alone printed, the last first."""
    host = case.people.host_of(rank)
    places = heard.places.get(rank, set()) | ({("host", short_name(host))} if host else set())
    places = {place for place in places if not _shared(place, heard, suspects)} or _unclaimed(heard, rank)
    for place in reversed(heard.lines):
        _, _, text, speaker = place
        if (speaker == ("rank", rank) or speaker in places) and (cause := _told(text, speaker, heard)):
            yield heard.quoted(rank, host, place, cause)


def _unclaimed(heard: _Heard, rank: int) -> set[Speaker]:
    """The hosts of which no rank printed anything: a silent rank must be on one of them."""
    if heard.places.get(rank):
        return set()
    spoken = {speaker for speakers in heard.speakers.values() for speaker in speakers if speaker[0] == "host"}
    return spoken - set().union(*heard.places.values()) if heard.places else set()


def _hear(item: Item, heard: _Heard) -> None:
    try:
        first, data = tail(item, _LARGEST)
    except OSError:
        return
    if not is_text(data[:4096]):
        return
    clock, hint, too_late = clock_of(item), hint_of_path(item.label), False
    said: list[tuple[str, int, str, Speaker]] = []
    for number, line in enumerate(data.split(b"\n"), first):
        if len(heard.lines) + len(said) >= _MOST_LINES:
            break
        voice = listen(line, clock)
        rank = voice.rank if voice.rank is not None else hint.rank
        places = _places(voice.host, voice.task)
        if rank is not None:
            heard.places.setdefault(rank, set()).update(places)
        too_late = too_late or any(map(line.__contains__, _TOO_LATE))
        speaker: Speaker | None = ("rank", rank) if rank is not None else next(iter(places), None)
        if speaker is not None and not too_late:
            said.append((item.label, number, voice.text[:_LONGEST], speaker))
    if not any(kind == "rank" for _, _, _, (kind, _) in said):
        return  # a log of hosts alone: its own rules know which of its lines are of this run
    heard.lines += said
    for _, _, text, speaker in said:
        heard.speakers.setdefault(_shape(text), set()).add(speaker)


def _places(host: str | None, task: int | None) -> list[Speaker]:
    named: list[Speaker] = [("host", short_name(host))] if host else []
    return [*named, ("task", task)] if task is not None else named


def _shared(place: Speaker, heard: _Heard, suspects: Collection[int]) -> bool:
    """Whether every rank is there: then it tells nothing of one."""
    others = [places for rank, places in heard.places.items() if rank not in suspects]
    return bool(others) and all(place in places for places in others)


def _told(text: str, speaker: Speaker, heard: _Heard) -> str | None:
    """The cause that an own line speaks of."""
    if heard.speakers[_shape(text)] != {speaker} or _NOT_SAID.match(text):
        return None
    known = [s for s, _ in recognise(text)]
    if any(s.role in ("root", "harmless") for s in known):
        return None  # its own rule has judged it
    doing = next((s.cause for s in known if s.role == "activity" and s.cause in causes()), None)
    return doing or activity_in(text)


def _shape(text: str) -> str:
    return _NUMBERS.sub("0", text[:200])
