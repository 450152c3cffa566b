"""The lines of a chunk one after the other, or only those with a word in them; a bar's redrawings are lines too."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import NamedTuple

from whichrank.evidence.text.chunks import NEWLINE, Chunk
from whichrank.evidence.text.words import Found

_EMPTY = re.compile(rb"\n{1,1000000}")


class Piece(NamedTuple):
    """A line, or what stands between two carriage returns of a line."""

    number: int
    start: int
    end: int
    words: tuple[bytes, ...]
    """The words that were found in it."""


class Pieces:
    """Goes through one chunk, forward."""

    def __init__(self, chunk: Chunk, found: Found) -> None:
        self._buffer, self._size = chunk.buffer, chunk.size
        self._places: list[int] = found.places.tolist()
        self._words = found.words()
        self._numbers: list[int] = (chunk.index(found.places) + chunk.first).tolist()
        self._at = 0
        self._number = chunk.first
        self._next = 0

    def any(self) -> Piece | None:
        """The next piece, whatever stands in it; of empty lines that follow each other only the last."""
        if self._buffer.startswith(b"\n\n", self._at):
            found = _EMPTY.match(self._buffer, self._at, self._size)
            passed = found.end() - self._at - 1 if found else 0
            self._at, self._number = self._at + passed, self._number + passed
        return self._piece(self._at, self._number) if self._at < self._size else None

    def told(self) -> Piece | None:
        """The next piece with a word in it."""
        if self._next >= len(self._places):
            return None
        place = self._places[self._next]
        start = self._buffer.rfind(b"\n", self._at, place) + 1 or self._at
        start = self._buffer.rfind(b"\r", start, place) + 1 or start
        return self._piece(start, self._numbers[self._next])

    def words_until(self, end: int) -> set[bytes]:
        """The words that stand before this place and were not met yet."""
        return set(self._words[self._next : bisect_left(self._places, end, self._next)])

    def skip(self, end: int) -> None:
        """Go on behind the line that ends here."""
        self._number += self._buffer.count(b"\n", self._at, end + 1)
        self._at = end + 1
        self._pass(end)

    def _piece(self, start: int, number: int) -> Piece:
        buffer = self._buffer
        end = buffer.find(b"\n", start, self._size)
        behind = end = self._size if end < 0 else end
        drawn = buffer.find(b"\r", start, end)
        if drawn >= 0:
            # Before a line's end the carriage return belongs to that end.
            behind = end if drawn == end - 1 else drawn
            end = drawn
        self._number = number + (behind < self._size and buffer[behind] == NEWLINE)
        self._at = behind + 1
        return Piece(number, start, end, self._pass(end))

    def _pass(self, end: int) -> tuple[bytes, ...]:
        begin = self._next
        while self._next < len(self._places) and self._places[self._next] < end:
            self._next += 1
        return tuple(self._words[begin : self._next])
