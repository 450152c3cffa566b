"""Lines that come again and again: the first of those that look alike are read at once, the last ones at the end.

Two lines look alike if they differ in digits only (also hexadecimal ones), begin with the same word and have the same
telling numbers: ranks, processes, devices, codes of errors. What lies between the first and the last is counted.
"""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

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
# host:pid:tid [device], as NCCL begins its lines.
_PROCESS = re.compile(rb":\d{1,10}:\d{1,10} \[")

Look = tuple[int, tuple[bytes, ...]]
"""The shape of a line, and who speaks."""


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


class _Seen:
    __slots__ = ("count", "held")

    def __init__(self, most: int) -> None:
        self.count = 0
        self.held: deque[Held] = deque(maxlen=most)


def speaker(line: bytes) -> tuple[bytes, ...]:
    """Who may have printed a line, and of what: how it begins, and its telling numbers."""
    head = line[:_LONGEST]
    process = _PROCESS.search(head)
    return _first(line), process[0] if process else b"", *_TELLING.findall(head)[:16]


def look(line: bytes) -> Look:
    """What lines that differ only in digits, and not in codes of errors, have in common, whoever prints them."""
    codes = tuple(told for told in _TELLING.findall(line[:_LONGEST])[:16] if not told.startswith(_SPEAKS))
    return hash(line.translate(None, _VARYING)), codes


def _first(line: bytes) -> bytes:
    found = _FIRST.match(line)
    return found[1] if found and b".py:" not in found[1] else b""


class Often:
    """Counts looks, and holds the last lines of those that come often."""

    def __init__(self, of_each: int) -> None:
        self._of_each = of_each
        """How many of the first are read at once, and how many of the last at the end."""
        self._seen: dict[Look, _Seen] = {}
        self._telling: dict[int, bool] = {}
        self._bytes = 0

    def holds(self, line: Held, told: bytes = b"") -> bool:
        """True where enough like it were read; then it is kept for the end, or counted.

        `told` is what the others must have in common with it, where that is not all of its text."""
        shape = hash((told or line.text).translate(None, _VARYING))
        who = self._speaker(shape, line.text)
        seen = self._seen.get((shape, who))
        if seen is None:
            if len(self._seen) >= _LOOKS:
                return False
            seen = self._seen[shape, who] = _Seen(self._of_each)
        seen.count += 1
        if seen.count <= self._of_each:
            return False
        let_go = len(seen.held[0].text) if len(seen.held) == self._of_each else 0
        grown = self._bytes + len(line.text) - let_go
        if grown <= _HELD:
            seen.held.append(line)
            self._bytes = grown
        return True

    def _speaker(self, shape: int, text: bytes) -> tuple[bytes, ...]:
        """As `speaker`; of a shape without telling numbers only the beginning is taken."""
        tells = self._telling.get(shape)
        if tells is False:
            return (_first(text),)
        who = speaker(text)
        if tells is None and len(self._telling) < _LOOKS:
            self._telling[shape] = any(who[1:])
        return who if any(who[1:]) else who[:1]

    def held(self) -> list[Held]:
        """What is still to be read, in the order of the file."""
        found: list[Held] = []
        for seen in self._seen.values():
            skipped = self._skipped(seen)
            found += [item._replace(skipped=skipped if at == 0 else 0) for at, item in enumerate(seen.held)]
        return sorted(found, key=lambda item: item.number)

    @property
    def dropped(self) -> int:
        """How many are never read."""
        return sum(self._skipped(seen) for seen in self._seen.values())

    def _skipped(self, seen: _Seen) -> int:
        return max(0, seen.count - self._of_each) - len(seen.held)
