"""What one host printed otherwise than all its peers.

Prologs, preflights and entrypoints print the same lines on every host: mounts, limits, versions, clocks, settings. One
that differs on a single host is quiet, early and easily the cause. Where the hosts stand in the lines is not known
beforehand: it is where lines that are otherwise alike have different names.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from whichrank.evidence.text.tail import tail
from whichrank.evidence.text.text_file import is_text
from whichrank.facts.host_topics import cause_of
from whichrank.facts.taxonomy import causes
from whichrank.model.contracts import Item
from whichrank.model.evidence import Ref
from whichrank.model.verdict import Verdict
from whichrank.records.second_looks import OddHost
from whichrank.timeline.identity.who import People

_LARGEST, _END = 1 << 19, 1 << 17
"""Of a longer file its beginning and its end are read."""
_FILES, _LINES, _LONGEST = 32, 2_000, 400
"""What is looked at: hosts say it at the start, and together. Of a file per rank no line stands beside its peers."""
_FIRST_WORDS = 4
"""The name stands among them."""
_HOSTS = 3
_MOST_HOSTS = 512
_STAMP = re.compile(r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d\S*\]?\s*|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s+")
_NAMED = re.compile(r"(?P<before>[\[(<]{0,2})(?P<name>[A-Za-z][\w.-]{1,62})(?P<behind>[\])>:|,]{0,3})")
_COUNTED = re.compile(r"\d+")
_NUMBER = re.compile(r"\W*(\d+(?:\.\d+)?)[A-Za-z%/]{0,6}\W*")
_PATH = re.compile(r"/(?!dev/)[\w.-]{2,}(?:/[\w.-]+)*[:,]?")
_ERROR = re.compile(r"(?:Error|Exception)\b|(?i:\b(?:no such file|not found|missing|failed)\b)")
_SLOW = re.compile(
    r"(?i)\b(?:slow(?:er|ly)?|slo|below (?:the )?(?:reference|baseline|target|budget)|(?:above|over) budget)\b"
)
_FINISHED = 0.7
"""Of a run that said that it ended well, nothing is looked for."""
_SYMPTOMS = (
    "unknown", "rank-exception", "rank-native-crash", "size-mismatch", "straggler", "conditional-collective",
    "collective-order",
)  # fmt: skip
_APART = 1.5
"""Numbers that lie closer together than this are measurements, and differ everywhere."""


class _Said(NamedTuple):
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
    """The lines in which exactly one host differs from all its peers, and that tell of a known cause."""
    if not _leaves_open(verdict):
        return []
    files = islice(items, _FILES)
    found = [replace(odd, category=verdict.category) for item in files for odd in _in_file(item, verdict)]
    return [replace(odd, in_error=odd.in_error or _is_of(odd.host, people, verdict)) for odd in found]


def _leaves_open(verdict: Verdict) -> bool:
    """Whether it says at most how the job went, and not why."""
    at_work = verdict.cause == "healthy" and verdict.confidence < _FINISHED
    generic = verdict.cause in causes() and causes()[verdict.cause].role in ("generic", "ending")
    return at_work or generic or verdict.cause in _SYMPTOMS


def _is_of(host: str, people: People, verdict: Verdict) -> bool:
    """Whether all that the verdict blames so far is on that host."""
    ranks = set(verdict.culprits.ranks)
    return bool(ranks) and ranks <= set(people.ranks_on(host))


def _in_file(item: Item, verdict: Verdict) -> Iterator[OddHost]:
    try:
        data, (_, end) = item.head(_LARGEST), tail(item, _END)
    except OSError:
        return
    if not is_text(data[:4096]):
        return
    lines = [(number, _text(line)) for number, line in enumerate(data.split(b"\n")[:_LINES], 1)]
    last = [_text(line) for line in end[-_END:].split(b"\n")]
    if verdict.cause == "healthy" and not any(map(_SLOW.search, last)):
        return
    errors = [line for line in last if _ERROR.search(line)]
    for said in _families(lines):
        for odd in _odd(item.label, said):
            paths = [word.rstrip(":,") for word in odd.ref.quote.split() if _PATH.fullmatch(word)]
            yield replace(odd, in_error=any(path in line for path in paths for line in errors))


def _text(line: bytes) -> str:
    return line[:_LONGEST].decode("utf-8", "replace")


def _families(lines: Sequence[tuple[int, str]]) -> list[list[_Said]]:
    """The lines behind each way to begin with a name."""
    families: dict[tuple[str, ...], list[_Said]] = defaultdict(list)
    for number, line in lines:
        words = tuple(_STAMP.sub("", line).split())
        for at, word in enumerate(words[:_FIRST_WORDS]):
            named = _NAMED.fullmatch(word)
            if named and len(words) > at + 1:
                key = (*words[:at], named["before"], named["behind"])
                families[key].append(_Said(number, named["name"], words[at + 1 :], line.strip()))
    return list(families.values())


def _peers(said: Sequence[_Said]) -> set[str]:
    """The names of several hosts of one kind, which begin at least two lines that are otherwise the same."""
    names: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for each in said:
        names[each.words].add(each.name)
    shared = [those for those in names.values() if len(those) >= _HOSTS - 1]
    peers = set().union(*shared) if len(shared) > 1 else set()
    kinds = Counter(map(_kind, peers))
    peers = {name for name in peers if kinds[_kind(name)] > 1}
    return peers if _HOSTS <= len(peers) <= _MOST_HOSTS else set()


def _kind(name: str) -> str:
    """What names have in common that differ in a number or a letter: `node7` and `node8`, `pod-a` and `pod-b`."""
    return _COUNTED.sub("", name)[:-1]


def _odd(label: str, said: Sequence[_Said]) -> Iterator[OddHost]:
    peers = _peers(said)
    topics: dict[tuple[str, int], dict[str, _Said]] = defaultdict(dict)
    seen: Counter[tuple[str, str]] = Counter()
    for each in said:
        if each.name in peers:
            topic = _COUNTED.sub("#", each.words[0])
            topics[topic, seen[each.name, topic]][each.name] = each
            seen[each.name, topic] += 1
    for by_host in topics.values():
        found = _one_that_differs(by_host) if by_host.keys() == peers else None
        cause = cause_of(found.own, found.usual, found.said.text) if found is not None else None
        if found is not None and cause is not None:
            peer = next(each for each in by_host.values() if each is not found.said)
            yield OddHost(found.said.name, cause, _quoted(label, found.said), _quoted(label, peer), len(peers))


def _quoted(label: str, said: _Said) -> Ref:
    return Ref(label, f"line {said.number}", said.text[:300], None, said.name)


def _one_that_differs(by_host: dict[str, _Said]) -> _Difference | None:
    found = []
    for each in by_host.values():
        others = [other.words for other in by_host.values() if other is not each]
        own, usual = _in_places(each.words, others) or _among_all(each.words, others)
        if (own or usual) and not _only_measured(own, usual):
            found.append(_Difference(each, " ".join(own), " ".join(usual)))
    return found[0] if len(found) == 1 else None


def _in_places(mine: Sequence[str], others: Sequence[Sequence[str]]) -> tuple[list[str], list[str]] | None:
    """Word by word, where all lines have as many: what it has, and what all others have there."""
    if any(len(words) != len(mine) for words in others):
        return None
    places = [at for at, word in enumerate(mine) if len({o[at] for o in others}) == 1 and others[0][at] != word]
    return [mine[at] for at in places], [others[0][at] for at in places]


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
