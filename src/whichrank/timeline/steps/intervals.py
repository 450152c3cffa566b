"""Algebra of time intervals, exact in whole nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Literal

import numpy as np

from whichrank.records.profiles.trace import Flags, Floats, Longs


class Cover:
    """A set of moments: disjoint intervals in order, none of them empty, no two of them touching."""

    def __init__(self, start: Longs | None = None, end: Longs | None = None) -> None:
        self.start: Longs = np.empty(0, np.int64) if start is None else start
        self.end: Longs = np.empty(0, np.int64) if end is None else end

    @cached_property
    def total(self) -> int:
        return int((self.end - self.start).sum())

    @cached_property
    def _sums(self) -> Longs:
        return np.concatenate(([0], np.cumsum(self.end - self.start)))

    def until(self, times: Any) -> Longs:
        """How much of it lies before each of these moments."""
        times = np.asarray(times, np.int64)
        if not len(self.start):
            return np.zeros(times.shape, np.int64)
        index = np.searchsorted(self.start, times, side="right")
        last = np.maximum(index - 1, 0)
        inside = np.clip(times - self.start[last], 0, self.end[last] - self.start[last])
        before: Longs = self._sums[last] + np.where(index > 0, inside, 0)
        return before

    def within(self, start: Any, end: Any) -> Longs:
        """How much of it lies between these moments."""
        found: Longs = self.until(end) - self.until(start)
        return found

    def __or__(self, other: Cover) -> Cover:
        if not len(other.start):
            return self
        if not len(self.start):
            return other
        return union(np.concatenate((self.start, other.start)), np.concatenate((self.end, other.end)))

    def __and__(self, other: Cover) -> Cover:
        return self - (self - other)

    def __sub__(self, other: Cover) -> Cover:
        """What of this is not in the other."""
        if not len(other.start) or not len(self.start):
            return self
        # What remains begins where this does outside of the other, or where the other ends inside of this; and so on.
        start = np.concatenate((self.start[~other._holds(self.start, "right")], other.end[self._holds(other.end)]))
        end = np.concatenate((self.end[~other._reaches(self.end)], other.start[self._holds(other.start)]))
        start.sort(kind="stable")
        end.sort(kind="stable")
        return Cover(start, end)

    def _holds(self, times: Longs, side: Literal["left", "right"] = "left") -> Flags:
        """Which of these moments lie before the end of an interval and after its start (`right`: or at it)."""
        last = np.searchsorted(self.start, times, side=side) - 1
        found: Flags = (last >= 0) & (self.end[last] > times)
        return found

    def _reaches(self, times: Longs) -> Flags:
        """Which of these moments lie after the start of an interval and before its end or at it."""
        last = np.searchsorted(self.start, times, side="left") - 1
        found: Flags = (last >= 0) & (self.end[last] >= times)
        return found


def median(values: Any) -> float:
    """The median; nothing of what np.median checks can occur here, and most arrays are short."""
    ordered = np.sort(np.asarray(values))
    middle = len(ordered) // 2
    return float(ordered[middle]) if len(ordered) % 2 else (float(ordered[middle - 1]) + float(ordered[middle])) / 2


def middle_row(table: Floats) -> Floats:
    """The median of each column."""
    ordered = np.sort(table, axis=0)
    middle: Floats = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return middle


def medians(values: Longs, first: Longs) -> Floats:
    """The median of each stretch; stretch n begins at first[n] and ends at first[n + 1]; 0 for an empty one."""
    count = np.diff(first)
    stretch = np.repeat(np.arange(len(count)), count)
    ordered = np.concatenate((values[np.lexsort((values, stretch))].astype(np.float64), [0.0]))
    low, high = first[:-1] + np.maximum(count - 1, 0) // 2, first[:-1] + count // 2
    return np.where(count > 0, (ordered[low] + ordered[high]) / 2, 0.0)


def distinct(numbers: Any) -> list[int]:
    """The numbers that occur, in order; none of them is negative. (np.unique would import masked arrays for it.)"""
    return np.flatnonzero(np.bincount(numbers)).tolist() if len(numbers) else []


_FEW = 4
"""So many comparisons of a column take less time than one look-up of each row."""


def among(numbers: Any, chosen: Iterable[int]) -> Flags:
    """Which of the numbers are chosen; none of them is negative. (np.isin would sort them all.)"""
    found = list(chosen)
    flags: Flags
    if len(found) <= _FEW:
        flags = np.zeros(len(numbers), np.bool_)
        for one in found:
            flags |= numbers == one
        return flags
    table = np.zeros(1 + max(int(numbers.max()) if len(numbers) else 0, *found, 0), np.bool_)
    table[found] = True
    flags = table[numbers]
    return flags


def union(start: Any, end: Any) -> Cover:
    """The moments that lie in at least one of the intervals."""
    start, end = np.asarray(start, np.int64), np.asarray(end, np.int64)
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if not len(start):
        return Cover()
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    return _merged(start, np.maximum.accumulate(end))


def _merged(start: Longs, end: Longs) -> Cover:
    """Intervals in order, of starts and of ends; those that touch become one."""
    if not len(start):
        return Cover()
    begins = np.flatnonzero(start[1:] > end[:-1]) + 1
    return Cover(start[np.concatenate(([0], begins))], end[np.concatenate((begins - 1, [len(end) - 1]))])


def gaps(cover: Cover, start: int, end: int) -> Cover:
    """What of the time from `start` to `end` is not covered."""
    return Cover(np.array([start], np.int64), np.array([end], np.int64)) - cover if end > start else Cover()
