"""Whole lines in the reading buffer, as arrays of where they begin and end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from whichrank.evidence.nccl.bulk import Indices

NEWLINE = 10


class Chunk:
    """One buffer full."""

    def __init__(self, view: memoryview, size: int, offset: int, first: int) -> None:
        self.view = view
        self.size = size
        self.offset = offset
        self.first = first
        """Number of the first line, from 1."""
        self.text = np.frombuffer(view, np.uint8)
        self.ends: Indices = np.flatnonzero(self.text[:size] == NEWLINE)
        self.starts: Indices = np.concatenate((np.zeros(1, np.int64), self.ends[:-1] + 1))

    def samples(self, known: Indices) -> list[bytes]:
        """Up to 16 lines that are not among the known ones, if these are many."""
        if len(self.ends) - len(known) < len(self.ends) // 8:
            return []
        strange = np.ones(len(self.ends), np.bool_)
        strange[known] = False
        rest = np.flatnonzero(strange)
        return [line for _, line in self.lines(rest[:: len(rest) // 16 + 1])]

    def lines(self, index: Indices) -> Iterator[tuple[int, bytes]]:
        """These lines, with their indices."""
        view = self.view
        for at, start, end in zip(index.tolist(), self.starts[index].tolist(), self.ends[index].tolist(), strict=True):
            yield at, bytes(view[start:end])

    def line(self, index: int) -> bytes:
        return bytes(self.view[self.starts[index] : self.ends[index]])

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
