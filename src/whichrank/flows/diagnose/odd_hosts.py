"""What one host printed otherwise than all its peers.

Prologs, preflights and entrypoints print the same lines on every host: mounts, limits, versions, clocks, settings. One
that differs on a single host is quiet, early and easily the cause. Where the hosts stand in the lines is not known
beforehand: it is where lines that are otherwise alike have different names.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import PurePosixPath
from typing import NamedTuple

from msgspec.structs import replace

from whichrank.evidence.text.prefixes import Clock, listen
from whichrank.evidence.text.tail import tail
from whichrank.evidence.text.text_file import is_text
from whichrank.facts.host_topics import CAUSES, STOPS_TOO, cause_of
from whichrank.facts.messages import recognise
from whichrank.facts.slowness import complains
from whichrank.facts.taxonomy import causes
from whichrank.flows.diagnose.host_tables import odd_cells
from whichrank.model.contracts import Item
from whichrank.model.evidence import Ref
from whichrank.model.verdict import Verdict
from whichrank.records.second_looks import OddHost
from whichrank.timeline.identity.who import People, by_short_name, host_in_name, short_name

_LARGEST, _END = 1 << 19, 1 << 17
"""Of a longer file its beginning and its end are read."""
_FILES, _LINES, _LONGEST = 32, 2_000, 400
"""What is looked at: hosts say it at the start, and together. Of a file per rank no line stands beside its peers."""
_FIRST_WORDS, _LAST_WORDS = 4, 12
"""The name stands among the first; that of a host that is known elsewhere may stand further behind."""
_SHAPE = 120
"""Characters of a line, without its numbers, by which lines of two files are the same."""
_SETTING = re.compile(r"(?:export )?([A-Z][A-Z0-9_]{2,60})=\S{1,200}")
_OF_THIS_RANK = re.compile(r"(?i)(?<=rank)[-_:= ]?\d{1,6}")
"""Files and shards that each rank has for itself."""
_OF_RANKS = re.compile(r"(?i)rank|gpu|cuda|attempt|step|epoch|std(?:out|err)")
"""What has a number and is no host."""
_PROCESS = re.compile(
    r"(?<![\w.-])[\w.-]{1,64}:\d{1,10}:\d{1,10} (?:\[-?\d{1,4}\] )?(?:[\w/]{1,40}\.cc:\d{1,6} )?"
    r"(?:NCCL (?:INFO|WARN) )?"
)
_ABOUT_NOTHING = re.compile(r"\W+|\[[^\]]*\]|INFO|WARN(?:ING)?|ERROR|DEBUG|\d\d-\d\d")
"""Separators, the rank, the level."""
_TOPIC = (2, 3, 4, 5)
"""So many words at the beginning of a line say what it is about."""
_LINES_OF_RANKS = 400
_HOSTS = 3
_MOST_HOSTS = 512
_STAMP = re.compile(
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d\S*\]?\s*|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s+|\[ {0,8}\d{1,9}\.\d{6}\] "
)
_NAMED = re.compile(r"(?P<before>[\[(<]{0,2})(?P<name>[A-Za-z][\w.-]{1,62})(?P<behind>[\])>:|,]{0,3})")
_COMMAND = re.compile(r"(?:\++|\$|[\w.@:~/-]{1,80}[$#]) (?P<command>[a-z/][^=]{1,60})")
_ANSWER = 8
"""Lines that belong to a command at most."""
_VERSION = re.compile(r"\((\d{1,3}), (\d{1,3}), (\d{1,3})\)")
_COUNTED = re.compile(r"\d+")
_NUMBER = re.compile(r"\W*(\d+(?:\.\d+)?)[A-Za-z%/]{0,6}\W*")
_ADDRESS, _LOOPBACK = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}"), re.compile(r"127(?:\.\d{1,3}){3}")
_PATH = re.compile(r"/(?!dev/)[\w.-]{2,}(?:/[\w.-]+)*[:,]?")
_ERROR = re.compile(r"(?:Error|Exception)\b|(?i:\b(?:no such file|not found|missing|failed)\b)")
_FINISHED = 0.7
"""Of a run that said that it ended well, nothing is looked for."""
_SYMPTOMS = (
    "unknown", "rank-exception", "rank-native-crash", "size-mismatch", "straggler", "conditional-collective",
    "collective-order", "uneven-inputs",
)  # fmt: skip
_HERE = "(this host)"
"""A host's own name, which each says otherwise."""
_FAR = 100
"""Times a number that no two hosts have alike: clocks that are off by minutes, not by microseconds."""
_APART = 1.5
"""Numbers that lie closer together than this are measurements, and differ everywhere."""


class _Text(NamedTuple):
    """A file: the lines at its beginning with their numbers, and those at its end."""

    label: str
    lines: list[tuple[int, str]]
    last: list[str]


class _Said(NamedTuple):
    source: str
    number: int
    name: str
    words: tuple[str, ...]
    """What stands behind the name."""
    text: str


class _Difference(NamedTuple):
    """The line of the one host that differs."""

    said: _Said
    own: str
    """The words that no other host has."""
    usual: str
    """Those that all others have instead."""


def odd_hosts(items: Iterable[Item], people: People, verdict: Verdict) -> list[OddHost]:
    """The lines in which exactly one host differs from all its peers, and that tell of a known cause: any where the
    verdict leaves the cause open, else those of its cause that tell which host it is about."""
    is_open = _leaves_open(verdict)
    if not is_open and (verdict.culprits.hosts or verdict.category == "healthy" or verdict.cause not in CAUSES):
        return []
    texts = [text for item in islice(items, _FILES) if (text := _text_of(item)) is not None]
    slow = [line for text in texts for line in text.last if complains(line)]
    if verdict.cause == "healthy" and not slow:
        return []
    errors = [line for text in texts for line in text.last if _ERROR.search(line)]
    near = {verdict.cause, *(other.cause for other in verdict.alternatives if verdict.confidence < _FINISHED)}
    found = [odd for odd in _all_odd(texts, people) if is_open or odd.cause in near]
    category = "slow" if slow and verdict.category != "hang" else verdict.category
    return [
        replace(
            odd,
            category=verdict.category if odd.cause == STOPS_TOO else category,
            in_error=_is_in(odd, errors) or _is_of(odd.host, people, verdict),
        )
        for odd in found
    ]


def _leaves_open(verdict: Verdict) -> bool:
    """Whether it says at most how the job went, and not why."""
    at_work = verdict.cause == "healthy" and verdict.confidence < _FINISHED
    generic = verdict.cause in causes() and causes()[verdict.cause].role in ("generic", "ending")
    late = verdict.cause.startswith("rank-stuck") and verdict.confidence < _FINISHED
    return at_work or generic or late or verdict.cause in _SYMPTOMS


def _is_of(host: str, people: People, verdict: Verdict) -> bool:
    """Whether all that the verdict blames so far is on that host, or its ranks are one of the two sides that differ."""
    ranks, there = set(verdict.culprits.ranks), set(people.ranks_on(host))
    return bool(ranks) and (ranks <= there or there == set(verdict.victims))


def _is_in(odd: OddHost, errors: Iterable[str]) -> bool:
    """Whether an error of the job names a path of the line."""
    paths = [word.rstrip(":,") for word in odd.ref.quote.split() if _PATH.fullmatch(word)]
    return any(path in line for path in paths for line in errors)


def _text_of(item: Item) -> _Text | None:
    try:
        data, (_, end) = item.head(_LARGEST), tail(item, _END)
    except OSError:
        return None
    if not is_text(data[:4096]):
        return None
    lines = [(number, _text(line)) for number, line in enumerate(data.split(b"\n")[:_LINES], 1)]
    return _Text(item.label, lines, [_text(line) for line in end[-_END:].split(b"\n")])


def _text(line: bytes) -> str:
    return line[:_LONGEST].decode("utf-8", "replace")


def _all_odd(texts: Sequence[_Text], people: People) -> list[OddHost]:
    families = _families(texts)
    known = {short_name(host) for host in people.hosts()}
    peers = known.union(*(_alike(said) for said in families.values()))
    found = [
        *_in_tables(texts),
        *(o for said in (*families.values(), *_behind(texts, peers)) for o in _odd(said, peers)),
    ]
    return found or list(_in_own_files(texts, people)) or list(_of_their_ranks(texts, people))


def _in_tables(texts: Iterable[_Text]) -> Iterator[OddHost]:
    """Cells of tables, of which the heading says what they are about."""
    for text in texts:
        for cell in odd_cells(text.lines):
            what = f"{cell.column} {cell.own}"
            cause = cause_of(cell.own, cell.usual, what)
            if cause is not None and not (cause == "slow-network" and _larger(cell.own, cell.usual)):
                host = short_name(cell.row.cells[0])
                ref = Ref(text.label, f"line {cell.row.line}", cell.row.text[:300], None, host)
                usual = Ref(text.label, f"line {cell.peer.line}", cell.peer.text[:300])
                yield OddHost(host, cause, ref, usual, cell.hosts, gpu=cell.gpu, what=what)


def _larger(own: str, usual: str) -> bool:
    """Whether it has more than the others, which slows nobody down."""
    mine, theirs = _NUMBER.fullmatch(own), _NUMBER.fullmatch(usual)
    return mine is not None and theirs is not None and float(mine[1]) > float(theirs[1])


def _families(texts: Iterable[_Text]) -> dict[tuple[str, ...], list[_Said]]:
    """The lines behind each way to begin with a name."""
    families: dict[tuple[str, ...], list[_Said]] = defaultdict(list)
    for text in texts:
        for number, line in text.lines:
            words = _words(line)
            for at, word in enumerate(words[:_FIRST_WORDS]):
                named = _NAMED.fullmatch(word)
                if named and len(words) > at + 1:
                    key = (*(_COUNTED.sub("#", word) for word in words[:at]), named["before"], named["behind"])
                    name = short_name(named["name"])
                    behind = tuple(_HERE if word.partition(".")[0] == name else word for word in words[at + 1 :])
                    families[key].append(_Said(text.label, number, name, behind, line.strip()))
    return families


def _behind(texts: Iterable[_Text], peers: Collection[str]) -> Iterable[list[_Said]]:
    """The lines in which the name of a known host stands further behind: what one host says of each of the others."""
    families: dict[tuple[str, ...], list[_Said]] = defaultdict(list)
    for text in texts if peers else ():
        for number, line in text.lines:
            words = _words(line)
            for at, word in enumerate(words[_FIRST_WORDS:_LAST_WORDS], _FIRST_WORDS):
                named = _NAMED.fullmatch(word)
                if named and len(words) > at + 1 and (name := short_name(named["name"])) in peers:
                    families[tuple(_COUNTED.sub("#", word) for word in words[:at])].append(
                        _Said(text.label, number, name, words[at + 1 :], line.strip())
                    )
    return families.values()


def _words(line: str) -> tuple[str, ...]:
    """The words without the time and the process; `(2, 21, 5)` is a version like `2.21.5`."""
    return tuple(_VERSION.sub(r"\1.\2.\3", _PROCESS.sub("", _STAMP.sub("", line))).split())


def _alike(said: Sequence[_Said]) -> set[str]:
    """The names of several hosts of one kind, which begin at least two lines that are otherwise the same."""
    names: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for each in said:
        names[each.words].add(each.name)
    shared = [those for those in names.values() if len(those) >= _HOSTS - 1]
    peers = set().union(*shared) if len(shared) > 1 else set()
    kinds = Counter(map(_kind, peers))
    return {name for name in peers if kinds[_kind(name)] > 1 and not _OF_RANKS.search(name)}


def _kind(name: str) -> str:
    """What names have in common that differ in a number or a letter: `node7` and `node8`, `pod-a` and `pod-b`."""
    return _COUNTED.sub("", name)[:-1]


def _odd(said: Sequence[_Said], peers: Collection[str]) -> Iterator[OddHost]:
    """What one of the hosts that begin these lines says otherwise, topic by topic."""
    topics: dict[tuple[str, int], dict[str, _Said]] = defaultdict(dict)
    seen: Counter[tuple[str, str]] = Counter()
    for each in said:
        if each.name in peers:
            topic = _topic(each.words)
            topics[topic, seen[each.name, topic]][each.name] = each
            seen[each.name, topic] += 1
    hosts = {name for name, _ in seen}
    if not _HOSTS <= len(hosts) <= _MOST_HOSTS:
        return
    everywhere = Counter(words for _, words in {(each.name, each.words) for each in said})
    for by_host in (*topics.values(), *_lone(said, peers, hosts)):
        found = _one_that_differs(by_host) if by_host.keys() == hosts else None
        cause = cause_of(found.own, found.usual, " ".join(_words(found.said.text))) if found is not None else None
        if found is None or cause is None or everywhere[found.said.words] > 1:
            continue  # others say it too, a line earlier or later
        if not _tells_another(found.said.text, cause):
            peer = next(each for each in by_host.values() if each is not found.said)
            yield OddHost(found.said.name, cause, _quoted(found.said), _quoted(peer), len(hosts))


def _topic(words: Sequence[str]) -> str:
    """What a line is about: its first word that names no process, rank or level."""
    word = next((word for word in words if not _ABOUT_NOTHING.fullmatch(word)), words[0])
    return _COUNTED.sub("#", word.partition("=")[0])


def _tells_another(line: str, cause: str) -> bool:
    """Whether the line says by itself that something else is wrong: its own rule has judged that."""
    return any(signature.role == "root" and signature.cause != cause for signature, _ in recognise(line))


def _lone(said: Sequence[_Said], peers: Collection[str], hosts: Collection[str]) -> Iterator[dict[str, _Said]]:
    """The only line of every host, whatever it begins with: `node3 /dev/sda1 ext4 /` beside `node1 nas:/data nfs4`."""
    of_hosts = [each for each in said if each.name in peers]
    if len(of_hosts) == len(hosts) and len({_COUNTED.sub("#", each.words[0]) for each in of_hosts}) > 1:
        yield {each.name: each for each in of_hosts}


def _in_own_files(texts: Sequence[_Text], people: People) -> Iterator[OddHost]:
    """A hint that stands in the file of one host, of several that are otherwise written alike."""
    names = {text.label: name for text in texts if (name := _host_of_file(text.label, texts, people))}
    shapes: dict[str, set[str]] = defaultdict(set)
    for text in texts:
        for _, line in text.lines if text.label in names else ():
            shapes[_COUNTED.sub("#", line)[:_SHAPE]].add(text.label)
    alike = {label for labels in shapes.values() if len(labels) >= _HOSTS for label in labels}
    if not _HOSTS <= len(alike) <= _MOST_HOSTS:
        return
    own = [text for text in texts if text.label in alike]
    yield from _odd([*_settings(own, names), *_answers(own, names)], set(names.values()))
    for text in (text for text in texts if text.label in alike):
        for number, line in text.lines:
            if shapes[_COUNTED.sub("#", line)[:_SHAPE]] != {text.label}:
                continue
            hints = [s for s, _ in recognise(line) if s.role == "hint" and s.cause in CAUSES]
            if hints:
                ref = Ref(text.label, f"line {number}", line.strip()[:300], None, names[text.label])
                yield OddHost(names[text.label], hints[0].cause, ref, None, len(alike))
                break


def _of_their_ranks(texts: Sequence[_Text], people: People) -> Iterator[OddHost]:
    """What all ranks of one host print otherwise than the ranks of all others, where a line names its rank alone."""
    said: dict[tuple[str, ...], dict[str, list[_Said]]] = defaultdict(lambda: defaultdict(list))
    numbered = sum(_stem(text.label) is not None for text in texts) >= _HOSTS
    for text in texts:
        own = _host_of_file(text.label, texts, people) or (_stem(text.label) if numbered else None)
        for number, line in text.lines[:_LINES_OF_RANKS]:
            voice = listen(line.encode(), Clock(0))
            rank = voice.rank if voice.rank is not None else voice.task
            host = voice.host or (people.host_of(rank) if rank is not None else None) or own
            words = _words(_OF_THIS_RANK.sub("#", voice.text))
            if host is None or len(words) <= _TOPIC[0]:
                continue
            each = _Said(text.label, number, short_name(host), words, line.strip())
            topic = tuple(_COUNTED.sub("#", word.partition("=")[0]) for word in words[: _TOPIC[-1]])
            for length in _TOPIC:
                said[topic[:length]][each.name].append(each)
    hosts = {name for by_host in said.values() for name in by_host}
    if not _HOSTS <= len(hosts) <= _MOST_HOSTS:
        return
    told: set[tuple[str, int]] = set()
    for by_host in said.values():
        found = _all_of_one(by_host) if by_host.keys() == hosts else None
        if found is None or (found.said.source, found.said.number) in told:
            continue
        cause = cause_of(found.own, found.usual, " ".join(found.said.words))
        if cause is not None:
            told.add((found.said.source, found.said.number))
            peer = next(lines[0] for name, lines in by_host.items() if name != found.said.name)
            yield OddHost(found.said.name, cause, _quoted(found.said), _quoted(peer), len(hosts))


def _all_of_one(by_host: Mapping[str, Sequence[_Said]]) -> _Difference | None:
    """The words that are in all lines of one host and in none of the others, which have others in common."""
    common = {name: set.intersection(*(set(each.words) for each in lines)) for name, lines in by_host.items()}
    anywhere = {name: set().union(*(each.words for each in lines)) for name, lines in by_host.items()}
    always, ever = (Counter(word for words in each.values() for word in words) for each in (common, anywhere))
    of_the_others = {word for word, hosts in always.items() if hosts == len(by_host) - 1 == ever[word]}
    odd = [name for name, words in common.items() if not of_the_others <= words]
    found = []
    for name in odd:
        mine, peer = by_host[name][0], next((by_host[other][0] for other in by_host if other not in odd), None)
        own = [word for word in mine.words if word in common[name] and ever[word] == 1]
        usual = [word for word in peer.words if word in of_the_others - anywhere[name]] if peer is not None else []
        if own and usual and not _only_measured(own, usual):
            found.append(_Difference(mine, " ".join(own), " ".join(usual)))
    return found[0] if len(found) == 1 else None


def _settings(texts: Sequence[_Text], names: Mapping[str, str]) -> list[_Said]:
    """The variables that files of hosts list, a line each."""
    lines = ((text.label, number, line.strip()) for text in texts for number, line in text.lines)
    found = [(label, number, line, _SETTING.fullmatch(line)) for label, number, line in lines]
    return [
        _Said(label, number, names[label], (setting[1], line), line)
        for label, number, line, setting in found
        if setting
    ]


def _answers(texts: Sequence[_Text], names: Mapping[str, str]) -> Iterator[_Said]:
    """What short commands printed that a shell wrote down before it ran them: `+ cat /sys/fs/cgroup/cpu.max`."""
    for text in texts:
        command, since = "", 0
        for number, line in text.lines:
            said = line.strip()
            if asked := _COMMAND.fullmatch(said):
                command, since = asked["command"], number
            elif command and said and number - since <= _ANSWER and not _STAMP.match(said):
                yield _Said(text.label, number, names[text.label], (command, *said.split()), f"{command}: {said}")


def _host_of_file(label: str, texts: Sequence[_Text], people: People) -> str | None:
    """The host whose file it is: by its name, or as one of several files whose names differ in a number alone."""
    if (host := host_in_name(label, by_short_name(people.hosts()))) is not None:
        return host
    stem = _stem(label)
    fellows = sum(stem is not None and _kind(stem) == _kind(_stem(text.label) or "") for text in texts)
    return stem if fellows >= _HOSTS else None


def _stem(label: str) -> str | None:
    """The name of a file where it ends as names of hosts do."""
    stem = PurePosixPath(label).name.partition(".")[0]
    return stem if stem[-1:].isdigit() and not _OF_RANKS.search(stem) else None


def _quoted(said: _Said) -> Ref:
    return Ref(said.source, f"line {said.number}", said.text[:300], None, said.name)


def _one_that_differs(by_host: dict[str, _Said]) -> _Difference | None:
    found = []
    for each in by_host.values():
        others = [other.words for other in by_host.values() if other is not each]
        if not _are_of_one_kind(others):
            continue
        own, usual = _in_places(each.words, others) or _among_all(each.words, others)
        if (own or usual) and not _only_measured(own, usual):
            found.append(_Difference(each, " ".join(own), " ".join(usual)))
    return found[0] if len(found) == 1 else None


def _are_of_one_kind(lines: Sequence[Sequence[str]]) -> bool:
    """Whether lines have most of their words in common, numbers aside: else they only stand at the same place."""
    shapes = [_COUNTED.sub("#", " ".join(words)).split(" ") for words in lines]
    if len({len(shape) for shape in shapes}) > 1:
        return False
    return 2 * sum(len(set(words)) == 1 for words in zip(*shapes, strict=True)) > len(shapes[0])


def _in_places(mine: Sequence[str], others: Sequence[Sequence[str]]) -> tuple[list[str], list[str]] | None:
    """Word by word, where all lines have as many: what it has, and what all others have there."""
    if any(len(words) != len(mine) for words in others):
        return None
    places = [
        at for at, word in enumerate(mine) if word not in (words := {o[at] for o in others}) and _apart(word, words)
    ]
    return [mine[at] for at in places], [others[0][at] for at in places]


def _apart(mine: str, others: set[str]) -> bool:
    """Whether all others say the same, or numbers of which this one is far from every other."""
    if len(others) == 1 or (_LOOPBACK.fullmatch(mine) and all(map(_ADDRESS.fullmatch, others))):
        return True
    numbers = [_NUMBER.fullmatch(word) for word in (mine, *others)]
    values = [abs(float(number[1])) for number in numbers if number]
    return len(values) == len(others) + 1 and (values[0] > _FAR * max(values[1:]) or _FAR * values[0] < min(values[1:]))


def _among_all(mine: Sequence[str], others: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """The words that nobody else has, and those that all others have; nothing where the others differ as well."""
    if len({len(words) for words in others}) > 1:
        return [], []
    shared, anywhere = set.intersection(*map(set, others)), set().union(*others)
    own = [word for word in mine if word not in anywhere]
    return own, [word for word in others[0] if word in shared and word not in mine]


def _only_measured(own: Sequence[str], usual: Sequence[str]) -> bool:
    """Whether nothing but numbers differ, and not by much."""
    numbers = [[_NUMBER.fullmatch(word) for word in words] for words in (own, usual)]
    if not all(match is not None for words in numbers for match in words):
        return False
    mine, theirs = ([float(match[1]) for match in words if match] for words in numbers)
    if len(mine) != len(theirs) or not theirs:
        return not theirs
    return all(max(a, b) < _APART * min(a, b) or a == b for a, b in zip(mine, theirs, strict=True))
