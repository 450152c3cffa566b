"""A text with very many telling lines, thinned: of those that look alike the first and the last of each rank stay.

Reading a line in detail takes some 50 µs, so that a log of 20 MB full of tracebacks or warnings would take a minute.
Readers keep some hundred events of a kind anyway. Rare lines always stay: what only one rank printed once is what
matters. Lines that are left out become empty ones, so that the others keep their numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from whichrank.evidence.text import shared_pass, tracebacks
from whichrank.evidence.text.chunks import Chunk, Indices
from whichrank.evidence.text.words import Words, places_of
from whichrank.model.contracts import Item

MOST = 10_000
"""Telling lines of a file that are read."""
_SMALL = 1 << 20
"""Bytes that hold no more than that."""
_BEGINS = b"most recent call"
_RANK = b"ank"
_REACH = 9
"""Bytes behind `rank` in which its number begins and ends: `rank17`, `Rank: 17`."""
# A weight for every byte; lines that differ in digits only look alike, hexadecimal ones included.
_WEIGHTS = np.random.default_rng(1).integers(1, 1 << 63, 256).astype(np.uint64)
_WEIGHTS[np.frombuffer(b"0123456789abcdef\r\n", np.uint8)] = 0

Hashes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


class _Units(Struct, frozen=True):
    """Telling lines and whole tracebacks, in the order of the file."""

    line: Indices
    """Number of the first line, from 1."""
    lines: Indices
    """How many lines it has."""
    look: Hashes
    rank: Indices

    def __len__(self) -> int:
        return len(self.line)


def thinned(item: Item, words: frozenset[bytes], folder: Path) -> tuple[Item, int]:
    """The item, or a thinned copy of it in `folder`, and how many lines were left out."""
    if item.size <= _SMALL or not words:
        return item, 0
    units = _units(item.path, words)
    if int(units.lines.sum()) <= MOST:
        return item, 0
    gone = ~chosen(units)
    dropped = _lines_of(units, gone)
    target = folder / "thinned"
    with target.open("wb") as out:
        for piece in _without(item.path, dropped):
            out.write(piece)
    return replace(item, path=target, size=target.stat().st_size), len(dropped)


def _units(path: Path, words: frozenset[bytes]) -> _Units:
    finder = shared_pass.finder(words | {_BEGINS})
    found = [_in_chunk(chunk, finder) for chunk in shared_pass.chunks_of(path)]
    columns = [np.concatenate(column) for column in zip(*found, strict=True)] if found else [np.zeros(0, np.int64)] * 4
    return _Units(columns[0], columns[1], columns[2].astype(np.uint64), columns[3])


def _in_chunk(chunk: Chunk, finder: Words) -> tuple[Indices, Indices, Hashes, Indices]:
    found = finder.find(chunk)
    told = np.unique(chunk.index(found.places))
    told = told[told < len(chunk.ends)]
    ends = told.copy()
    headers = chunk.index(found.places[found.which == finder.numbers[_BEGINS]]).tolist()
    if headers:
        told, ends = _with_blocks(chunk, told, headers)
    return told + chunk.first, ends - told + 1, _looks(chunk, chunk.starts[told], chunk.ends[ends]), _ranks(chunk)[told]


def _looks(chunk: Chunk, starts: Indices, stops: Indices) -> Hashes:
    """The sum of the weights of the bytes of each."""
    if not len(starts):
        return np.zeros(0, np.uint64)
    text = np.concatenate([chunk.text[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)])
    sizes = stops - starts
    sums: Hashes = np.add.reduceat(_WEIGHTS[text], np.cumsum(sizes) - sizes)
    return sums


def _with_blocks(chunk: Chunk, told: Indices, headers: list[int]) -> tuple[Indices, Indices]:
    """The telling lines, where a traceback that stands undisturbed counts as one of many lines."""
    last = {at: at for at in told.tolist()}
    inside = np.zeros(len(chunk.ends), np.bool_)
    starts, ends, behind = chunk.starts.tolist(), chunk.ends.tolist(), -1
    for at in headers:
        if at <= behind:
            continue
        block = tracebacks.block(chunk.buffer, starts[at], ends[at], chunk.size)
        if block is not None:
            behind = bisect_left(ends, block[0])
            inside[at + 1 : behind + 1] = True
            last[at] = behind
    kept = told[~inside[told]]
    return kept, np.array([last[at] for at in kept.tolist()], np.int64)


def _ranks(chunk: Chunk) -> Indices:
    """For each line the first rank that it names; -1 without."""
    found = np.full(len(chunk.ends), -1, np.int64)
    places = places_of(chunk, _RANK) + len(_RANK)
    value, state = np.zeros(len(places), np.int64), np.zeros(len(places), np.int8)  # 0 before, 1 within, 2 behind
    for step in range(_REACH):
        letter = chunk.text[places + step]
        digit = (letter >= ord("0")) & (letter <= ord("9"))
        state[~digit & ((state == 1) | (step >= 2))] = 2
        state[digit & (state == 0)] = 1
        within = state == 1
        value[within] = value[within] * 10 + letter[within] - ord("0")
    named = (value > 0) | (chunk.text[places + 1] == ord("0")) | (chunk.text[places] == ord("0"))
    lines = chunk.index(places[named])[::-1]
    fits = lines < len(found)
    found[lines[fits]] = value[named][::-1][fits]
    return found


def chosen(units: _Units, most: int = MOST) -> Flags:
    """Which stay: all rare looks, and so many of the others that all have about `most` lines."""
    _, look, count = np.unique(units.look, return_inverse=True, return_counts=True)
    cost = np.bincount(look, weights=units.lines).astype(np.int64)
    cap = _cap(cost, most)
    stay = cost[look] <= cap
    quota = np.maximum(4, cap * count // cost) // 4
    rows = np.arange(len(look))
    by_rank = np.lexsort((rows, units.rank, look))
    changes = (np.diff(look[by_rank]) != 0) | (np.diff(units.rank[by_rank]) != 0)
    firsts, lasts = by_rank[np.append(True, changes)], by_rank[np.append(changes, True)]
    for some, backward in ((rows, False), (rows, True), (firsts, False), (lasts, True)):
        stay[_first_of_each(some, look, quota, backward=backward)] = True
    # Where hardly two look alike that is still too much: both ends of the file are read.
    spent = np.cumsum(np.where(stay, units.lines, 0))
    kept: Flags = stay & ((spent <= most // 2) | (spent > spent[-1] - most // 2))
    return kept


def _first_of_each(rows: Indices, look: Indices, quota: Indices, *, backward: bool) -> Indices:
    """Of these rows, so many of each look as it may have, from the beginning of the file or from its end."""
    order = rows[np.lexsort((-rows if backward else rows, look[rows]))]
    looks = look[order]
    begins = np.searchsorted(looks, np.arange(len(quota)))
    return order[np.arange(len(order)) - begins[looks] < quota[looks]]


def _cap(cost: Indices, most: int) -> int:
    """The largest number of lines that every look may have, so that all have at most `most`."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(cost, middle).sum()) <= most:
            low = middle
        else:
            high = middle - 1
    return low


def _lines_of(units: _Units, which: Flags) -> Indices:
    """The numbers of all lines of these."""
    first, lines = units.line[which], units.lines[which]
    within = np.arange(int(lines.sum())) - np.repeat(np.cumsum(lines) - lines, lines)
    return np.repeat(first, lines) + within


def _without(path: Path, dropped: Indices) -> Iterator[bytes]:
    """The text, with these lines empty."""
    for chunk in shared_pass.chunks_of(path):
        begin, end = np.searchsorted(dropped, [chunk.first, chunk.first + len(chunk.ends)])
        here = dropped[begin:end] - chunk.first
        if not len(here):
            yield bytes(chunk.view[: chunk.size])
            continue
        keep = np.ones(len(chunk.ends), np.bool_)
        keep[here] = False
        bytes_of = np.diff(np.append(chunk.starts, chunk.size))
        mask = np.repeat(keep, bytes_of)
        mask[chunk.ends[: chunk.breaks]] = True
        yield chunk.text[: chunk.size][mask].tobytes()
