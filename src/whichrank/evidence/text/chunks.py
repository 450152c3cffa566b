"""Big text in pieces of whole lines, with the places where the lines begin and end; memory does not grow."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from whichrank.evidence.text.native import library

CHUNK = 1 << 20
"""Text and index arrays of one chunk stay within a core's second-level cache."""
PADDING = 512
"""Bytes that exist behind the text, since arrays of words reach beyond the end of a line."""
NEWLINE = 10
UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}

Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]


class Stream(Protocol):
    """What is needed of a binary stream."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...


class Readable(Protocol):
    """A stream in which one can go back."""

    def seek(self, offset: int, /) -> int: ...

    def read(self, size: int, /) -> bytes | None: ...


class Chunk:
    """One buffer full: whole lines, or a piece of a line that is longer than the buffer."""

    def __init__(self, buffer: bytearray, size: int, offset: int, first: int) -> None:
        self.buffer = buffer
        self.view = memoryview(buffer)
        self.size = size
        self.offset = offset
        self.first = first
        """Number of the first line, from 1."""
        self.text = np.frombuffer(self.view, np.uint8)
        self.ends = _ends(buffer, self.text, size)
        self.breaks = len(self.ends)
        """How many lines end here."""
        if size and buffer[size - 1] != NEWLINE:
            self.ends = np.append(self.ends, size)
        self.starts: Indices = np.concatenate((np.zeros(1, np.int64), self.ends[:-1] + 1))

    def samples(self, word: bytes, known: Indices) -> list[bytes]:
        """Up to 16 lines with the word in them that are not among the known ones, if lines of others are many."""
        if len(self.ends) - len(known) < len(self.ends) // 8:
            return []
        strange = np.ones(len(self.ends), np.bool_)
        strange[known] = False
        places = []
        for start in range(0, self.size, self.size // 16 + 1):
            place = self.buffer.find(word, start, self.size)
            if place < 0:
                break
            places.append(place)
        index = self.index(sorted(set(places)))
        return [line for _, line in self.lines(index[strange[index]])]

    def lines(self, index: Indices) -> Iterator[tuple[int, bytes]]:
        """These lines, with their indices."""
        view = self.view
        for at, start, end in zip(index.tolist(), self.starts[index].tolist(), self.ends[index].tolist(), strict=True):
            yield at, bytes(view[start:end])

    def line(self, index: int) -> bytes:
        return bytes(self.view[self.starts[index] : self.ends[index]])

    def index(self, places: Sequence[int] | Indices) -> Indices:
        """In which line each of these places is."""
        found: Indices = np.searchsorted(self.ends, np.asarray(places, np.int64))
        return found

    def place(self, index: int) -> tuple[int, int, int]:
        """Where the line begins and ends in the file, and its number."""
        return (
            self.offset + int(self.starts[index]),
            self.offset + int(self.ends[index]),
            self.first + index,
        )

    def places(self, index: Indices, limit: int) -> Indices:
        """Rows as of `place` for the last of these lines."""
        index = index[-limit:]
        return np.column_stack((self.starts[index] + self.offset, self.ends[index] + self.offset, index + self.first))


def _ends(buffer: bytearray, text: Bytes, size: int) -> Indices:
    """Where the lines end."""
    native = library()
    if native is None:
        return np.flatnonzero(text[:size] == NEWLINE)
    return np.frombuffer(native.ends(buffer, size), np.int64)


class Chunks:
    """The chunks of a stream; a chunk is gone when the next is asked for."""

    def __init__(self, stream: Stream, size: int | None = None) -> None:
        self._stream = stream
        self._size = size or CHUNK
        self.cut = False
        """Whether the last line lacks its end, once all is read."""

    def __iter__(self) -> Iterator[Chunk]:
        buffer = bytearray(self._size + PADDING)
        view = memoryview(buffer)
        filled = offset = 0
        first = 1
        while count := self._stream.readinto(view[filled : self._size]):
            filled += count
            end = buffer.rfind(b"\n", 0, filled) + 1
            if not end and filled == self._size:
                # A bar that redraws itself, or a monstrous line: cut where a redrawing begins, or anywhere.
                end = buffer.rfind(b"\r", 0, filled) + 1 or filled
            if end:
                chunk = Chunk(buffer, end, offset, first)
                yield chunk
                first += chunk.breaks
            view[: filled - end] = bytes(view[end:filled])
            filled, offset = filled - end, offset + end
        if filled:
            self.cut = True
            buffer[filled] = NEWLINE
            yield Chunk(buffer, filled + 1, offset, first)


class Decoded:
    """A stream of UTF-16 text, read as UTF-8."""

    def __init__(self, stream: Stream, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._buffer = memoryview(bytearray(1 << 16))
        self._rest = b""

    def readinto(self, buffer: memoryview, /) -> int:
        while not self._rest and (count := self._stream.readinto(self._buffer)):
            self._rest = self._decoder.decode(self._buffer[:count]).encode("utf-8", "replace")
        piece, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)
