"""Lines that come again and again: the first of those that look alike are read at once, the last ones at the end.

Two lines look alike if they differ in digits only (also hexadecimal ones), begin with the same word and have the same
telling numbers: ranks, processes, devices, codes of errors. What lies between the first and the last is counted.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from whichrank.evidence.text.chunks import Chunk, Indices, Readable
from whichrank.evidence.text.native import library

_LOOKS = 1 << 12
_HELD = 8 << 20
"""Bytes of text held in all."""
_LONGEST = 512
_VARYING = b"0123456789abcdef"
# The first word behind a date: a launcher's prefix, a host, a rank. The place in a program that warns is none of these.
_FIRST = re.compile(
    rb"(?:\[?\d{4}-\d\d-\d\d[T ][\d:.,]{8,16}\S{0,6}\s{0,2}|[A-Z][a-z]{2} [ \d]\d [\d:]{8} )?\s{0,8}(\S{0,80})"
)
# Every branch begins with a letter of its own: the search passes over all others at once.
_TELLING = re.compile(
    rb"rank\D{0,3}\d{1,7}|Rank\D{0,3}\d{1,7}|pid\D{0,3}\d{1,10}|GPU \d{1,4}|mlx5_\d{1,4}"
    rb"|Xid \([^)\n]{0,40}\): \d{1,4}|status[^\d\n]{0,20}\d{1,6}|errno[^\d\n]{0,20}\d{1,6}"
    rb"|rror[^\d\n]{0,20}\d{1,6}|code[^\d\n]{0,20}\d{1,6}|signal[^\d\n]{0,20}\d{1,6}"
)
_SPEAKS = (b"rank", b"Rank", b"pid", b"GPU", b"mlx5")
_CODES = (b"rror", b"code", b"status", b"errno", b"signal", b"Xid")
"""Who speaks, and the others."""
# host:pid:tid [device], as NCCL begins its lines.
_PROCESS = re.compile(rb":\d{1,10}:\d{1,10} \[")

Look = tuple[int, tuple[bytes, ...]]
"""The shape of a line, and its codes of errors."""


class Held(NamedTuple):
    """A line (or several, of one message) to be read at the end."""

    number: int
    text: bytes
    after_ns: int | None
    """The newest time known when it was met."""
    words: tuple[bytes, ...]
    """What was found in it."""
    skipped: int = 0
    """How many that look alike were left out just before it."""
    said: object = None
    """What those like it say, where the reader told so by `settle`."""
    place: tuple[int, int] | None = None
    """Where it begins and ends in the file; then its text and what was found in it are still to be read."""

    def text_in(self, stream: Readable) -> bytes:
        """Its text, if need be by the file."""
        if self.place is None:
            return self.text
        stream.seek(self.place[0])
        return stream.read(self.place[1] - self.place[0]) or b""


class _Waiting:
    """The last lines of a look, or of several that say the same, and how many there were."""

    __slots__ = ("count", "held", "places", "said")

    def __init__(self, most: int, said: object = None) -> None:
        self.count = 0
        self.held: deque[Held] = deque(maxlen=most)
        self.places: deque[tuple[Indices, int | None]] = deque()
        """Begin, end and number of lines of one chunk each, and the newest time known there."""
        self.said = said

    def last(self, most: int) -> list[Held]:
        """The last of all, in the order of the file."""
        found = [*self.held]
        for rows, after_ns in self.places:
            found += [Held(number, b"", after_ns, (), place=(begin, end)) for begin, end, number in rows.tolist()]
        return sorted(found, key=lambda line: line.number)[-most:]


class _Seen:
    __slots__ = ("at_once", "count", "waiting")

    def __init__(self, most: int) -> None:
        self.count = 0
        self.at_once = most
        self.waiting = _Waiting(most)


def speaker(line: bytes) -> tuple[bytes, ...]:
    """Who may have printed a line, and of what: how it begins, and its telling numbers."""
    head = line[:_LONGEST]
    process = _PROCESS.search(head)
    return _first(line), process[0] if process else b"", *_TELLING.findall(head)[:16]


def keys(chunk: Chunk, lines: Indices) -> Indices:
    """A number for each of these lines: the same for those that look alike and have the same speaker."""
    native = library()
    if native is None:
        return np.array([key_of(line) for _, line in chunk.lines(lines)], np.int64)
    found = native.looks(chunk.buffer, chunk.starts[lines].tobytes(), chunk.ends[lines].tobytes())
    return np.frombuffer(found, np.int64)


def key_of(text: bytes, told: int | None = None) -> int:
    """As `keys`; the first `told` bytes are what the others must have in common with it, or all of it."""
    told = len(text) if told is None else told
    native = library()
    if native is None:
        return hash((text[:told].translate(None, _VARYING), speaker(text)))
    number: int = native.look(text, told)
    return number


def look(line: bytes) -> Look:
    """What lines that differ only in digits, and not in codes of errors, have in common, whoever prints them."""
    head = line[:_LONGEST]
    told = _TELLING.findall(head)[:16] if any(map(head.__contains__, _CODES)) else ()
    return hash(line.translate(None, _VARYING)), tuple(one for one in told if not one.startswith(_SPEAKS))


def _first(line: bytes) -> bytes:
    found = _FIRST.match(line)
    return found[1] if found and b".py:" not in found[1] else b""


class Often:
    """Counts looks, and holds the last lines of those that come often."""

    def __init__(self, of_each: int) -> None:
        self._of_each = of_each
        """How many of the first are read at once, and how many of the last at the end."""
        self._seen: dict[int, _Seen] = {}
        self._settled: dict[tuple[int, ...], _Waiting] = {}
        self._bytes = 0
        self._met: _Seen | None = None

    def holds(self, line: Held, key: int) -> bool:
        """True where enough with this key were read; then it is kept for the end, or counted."""
        seen = self._met = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= _LOOKS:
                return False
            seen = self._met = self._seen[key] = _Seen(self._of_each)
        seen.count += 1
        if seen.count <= seen.at_once:
            return False
        seen.waiting.count += 1
        self._hold(seen.waiting, line)
        return True

    def _hold(self, waiting: _Waiting, line: Held) -> None:
        held = waiting.held
        let_go = len(held[0].text) if len(held) == self._of_each else 0
        grown = self._bytes + len(line.text) - let_go
        if grown <= _HELD:
            held.append(line)
            self._bytes = grown

    def settle(self, said: Sequence[object]) -> None:
        """Enough is kept of what lines like the one met last say: from here on all that say the same wait together."""
        if self._met is not None and not self._met.waiting.count:
            self._met.at_once = self._met.count
            self._met.waiting = self._settled.setdefault(tuple(map(id, said)), _Waiting(self._of_each, said))

    def pass_over(self, keys: Indices, chunk: Chunk, lines: Indices, after_ns: int | None) -> Indices:
        """As `holds` for many lines of a chunk of a file; which are left to be read at once.

        Of the others the places are kept: most of them are outdone by lines behind them."""
        looks, which = np.unique(keys, return_inverse=True)
        counts = np.bincount(which).tolist()
        waiting: list[_Waiting] = []
        queue = np.full(len(looks), -1, np.int64)
        for at, key in enumerate(looks.tolist()):
            seen = self._seen.get(key)
            if seen is not None and seen.count >= seen.at_once:
                seen.count += counts[at]
                seen.waiting.count += counts[at]
                if seen.waiting not in waiting:
                    waiting.append(seen.waiting)
                queue[at] = waiting.index(seen.waiting)
        queued = queue[which]
        for number, those in enumerate(waiting):
            self._hold_places(those, chunk.places(lines[queued == number], self._of_each), after_ns)
        left: Indices = np.flatnonzero(queued < 0)
        return left

    def _hold_places(self, waiting: _Waiting, rows: Indices, after_ns: int | None) -> None:
        places = waiting.places
        let_go, held = 0, len(rows) + sum(len(others) for others, _ in places)
        outdone = 0
        for others, _ in places:
            if held - len(others) < self._of_each:
                break
            held -= len(others)
            let_go += _bytes_in(others)
            outdone += 1
        grown = self._bytes + _bytes_in(rows) - let_go
        if grown <= _HELD:
            for _ in range(outdone):
                places.popleft()
            places.append((rows, after_ns))
            self._bytes = grown

    def held(self) -> list[Held]:
        """What is still to be read, in the order of the file."""
        found: list[Held] = []
        for waiting in self._queues():
            last = waiting.last(self._of_each)
            skipped = waiting.count - len(last)
            found += [
                item._replace(skipped=skipped if at == 0 else 0, said=waiting.said) for at, item in enumerate(last)
            ]
        return sorted(found, key=lambda item: item.number)

    def _queues(self) -> list[_Waiting]:
        own = [seen.waiting for seen in self._seen.values() if seen.waiting.said is None]
        return [*own, *self._settled.values()]

    @property
    def dropped(self) -> int:
        """How many are never read."""
        return sum(waiting.count - len(waiting.last(self._of_each)) for waiting in self._queues())


def _bytes_in(rows: Indices) -> int:
    return int((rows[:, 1] - rows[:, 0]).sum())
