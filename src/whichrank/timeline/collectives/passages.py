"""What followed which run of operations, over many sequences: a table that is looked up by the run's hash."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from whichrank.timeline.collectives.lineup import scattered

# Lengths of the runs of operations that are used as context, longest first.
CONTEXTS = (24, 12, 6, 3, 2, 1)

U64 = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

_BASE = 0x9E3779B97F4A7C15
"""Odd, so that it has an inverse modulo 2**64."""


def _powers(base: int, count: int) -> U64:
    steps = np.full(count, base, np.uint64)
    steps[:1] = 1
    return np.multiply.accumulate(steps)


def run_hashes(labels: Ints, length: int) -> U64:
    """For each place from `length` on, the hash of the run of labels before it (polynomial, modulo 2**64).

    The same run has the same hash wherever it stands."""
    count = len(labels)
    if count <= length:
        return np.empty(0, np.uint64)
    mark = scattered(labels).astype(np.uint64)
    sums = np.concatenate([np.zeros(1, np.uint64), np.add.accumulate(mark * _powers(_BASE, count))])
    window: U64 = sums[length:count] - sums[: count - length]
    return window * _powers(pow(_BASE, -1, 1 << 64), count - length)


class Passages:
    """Every place in every sequence that was added, by the runs before it."""

    def __init__(self) -> None:
        self._added: list[tuple[int, Ints]] = []
        self._tables: dict[int, tuple[U64, Ints, Ints]] = {}

    def add(self, rank: int, labels: Ints) -> None:
        """Take in a sequence of one rank."""
        self._added.append((rank, labels))
        self._tables.clear()

    def _table(self, length: int) -> tuple[U64, Ints, Ints]:
        """Hashes in order, and for each the label that followed and the rank."""
        if length not in self._tables:
            labels = np.concatenate([labels for _, labels in self._added])
            sizes = [len(labels) for _, labels in self._added]
            ranks = np.repeat([rank for rank, _ in self._added], sizes)
            place = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # in its own sequence
            whole = np.flatnonzero(place >= length)
            hashes = run_hashes(labels, length)[whole - length]
            order = np.argsort(hashes, kind="stable")
            self._tables[length] = hashes[order], labels[whole][order], ranks[whole][order]
        return self._tables[length]

    def after(self, length: int, run: np.uint64) -> tuple[Ints, Ints]:
        """The labels that followed this run anywhere, and the ranks on which they did."""
        hashes, follows, ranks = self._table(length)
        low, high = hashes.searchsorted(run, "left"), hashes.searchsorted(run, "right")
        return follows[low:high], ranks[low:high]
