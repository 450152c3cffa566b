"""Calls counted by the megabyte: lines are recognised by their shape, without being read one by one.

A call line begins with "host:pid:" and ends with " comm 0x… [nranks=…] stream …", as no other line
does. How far before the end " comm 0x" stands takes few values, which are learnt from lines that were
read properly. For every line that fits, the bytes that name host, pid and communicator are hashed
with a handful of array operations; each new hash is read once as text and then stands for (process,
communicator). A line that fits no learnt shape is left to the caller: nothing is guessed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from whichrank.evidence.readers.nccl_log.prefix import process_span
from whichrank.evidence.text.chunks import Bytes, Indices

Words = npt.NDArray[np.uint64]


_COMM = b" comm 0x"
_COMM_WORD = np.uint64(int.from_bytes(_COMM, "little"))
# The pointer has up to 16 digits; after a shorter one stands " [nranks=", the same in every line.
_TAIL_BYTES = 24
_LONGEST_SPAN, _LONGEST_TAIL = 200, 120
# The counter, the number of elements and the buffers may grow by so many digits from line to line.
_GROWTH = 24
_TAILS = 32
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


class Shapes(Struct):
    """Where things stand in the call lines seen so far."""

    begin: int = _LONGEST_SPAN
    """Nearest to the start of the line that a host name was seen to begin…"""
    end: int = 0
    """… and the farthest that "host:pid:" was seen to end."""
    longest: int = 0
    """Length of the longest call line; a much longer one holds something else as well."""
    tails: list[int] = field(default_factory=list)
    """How far before the end of the line " comm 0x" begins."""

    def learn(self, line: bytes) -> bool:
        """Take over the shape of this call line; True when it adds something."""
        tail, span = len(line) - line.rfind(_COMM), process_span(line)
        if span is None or span[1] > _LONGEST_SPAN or not len(_COMM) < tail < _LONGEST_TAIL:
            return False
        before = (self.begin, self.end, len(self.tails))
        self.begin, self.end = min(self.begin, span[0]), max(self.end, span[1])
        if tail not in self.tails and len(self.tails) < _TAILS:
            self.tails.append(tail)
        grown = len(line) > self.longest + _GROWTH
        self.longest = max(self.longest, len(line))
        return grown or before != (self.begin, self.end, len(self.tails))


def match(text: Bytes, starts: Indices, ends: Indices, shapes: Shapes) -> tuple[Indices, Words]:
    """The lines that have a learnt shape, and for each a hash of what names process and communicator."""
    index, tails = _with_tail(text, ends, shapes.tails)
    starts = starts[index]
    short = ends[index] - starts <= shapes.longest + _GROWTH
    if not short.all():
        index, tails, starts = index[short], tails[short], starts[short]
    keys = np.zeros(len(index), np.uint64)
    _mix(keys, tails)
    # Rounded up to whole words: some of the thread's number does no harm.
    _mix(keys, _take(text, starts + shapes.begin, max(8, -(-(shapes.end - shapes.begin) // 8) * 8)))
    return index, keys


def distinct(keys: Words) -> Words:
    """The different hashes, ascending."""
    if not len(keys) or (keys == keys[0]).all():
        return keys[:1]
    ordered = np.sort(keys)
    found: Words = ordered[np.concatenate((np.ones(1, np.bool_), ordered[1:] != ordered[:-1]))]
    return found


def _with_tail(text: Bytes, ends: Indices, distances: list[int]) -> tuple[Indices, Words]:
    """The lines with " comm 0x" at one of these distances from their end, and the pointers there."""
    rest = np.arange(len(ends))
    indices, pointers = [rest[:0]], [np.empty((0, _TAIL_BYTES // 8 - 1), np.uint64)]
    for distance in distances:
        places = ends[rest] - distance
        if len(places) and places[0] < 0:
            places = np.maximum(places, 0)
        rows = _take(text, places, _TAIL_BYTES)
        hit = rows[:, 0] == _COMM_WORD
        indices.append(rest[hit])
        pointers.append(rows[hit, 1:])
        rest = rest[~hit]
        if not len(rest):
            break
    if len(distances) == 1:
        return indices[-1], pointers[-1]
    index = np.concatenate(indices)
    order = np.argsort(index, kind="stable")
    return index[order], np.concatenate(pointers)[order]


def _mix(keys: Words, rows: Words) -> None:
    for column in rows.T:
        keys ^= column
        keys *= _MIX
        keys ^= keys >> _SHIFT


def _take(text: Bytes, places: Indices, width: int) -> Words:
    """The bytes at each place, as rows of words."""
    overlapping: npt.NDArray[np.void] = np.ndarray((len(text) - width + 1,), f"V{width}", text, 0, (1,))
    return overlapping[places].view("<u8").reshape(len(places), width // 8)
