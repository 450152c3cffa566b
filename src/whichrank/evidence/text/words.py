"""Finds every place of hundreds of literals in big text.

A literal of seven or more bytes covers four aligned bytes wherever it begins: only every fourth byte is looked at,
among the four words that each literal may show. The few shorter ones are found by two or three of their letters. A loop
in C does that where it was built; without it hyperscan (`whichrank[fast]`), or array operations alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, cached_property
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from whichrank.evidence.text.chunks import Bytes, Chunk, Indices
from whichrank.evidence.text.native import library

ALIGNED = 7
_REACH, _MUCH = 64, 1 << 16
"""Bytes of a long literal that are looked at, and what an everyday use of some counts for."""
_FEW = 4
"""Everyday uses of two letters up to which they may stand for a short literal."""
_SLOTS = 1 << 16
# Rough order of letters in English and in logs, commonest first.
_COMMON = b" etaoinsrhldcumfpgwybv.:,-_/=()[]0123456789kxjqz"
_RARITY = bytes(_COMMON.find(bytes((letter,)).lower()) % 64 for letter in range(256))
# Words of everyday lines: a window that lies in one of them finds too much.
_EVERYDAY = (
    b" NCCL INFO Channel via P2P/CUMEM/read AllReduce: opCount sendbuff recvbuff count datatype root comm nranks "
    b"AllGather ReduceScatter Broadcast SendRecv Bytes -> Algo RING proto SIMPLE Trees Connected all rings proxy "
    b"[rank0]: [default0]: INFO WARNING DEBUG ERROR root train training step iteration epoch loss time memory gpu "
    b"learning rate grad_norm grad norm samples tokens throughput global batch size consumed elapsed per iteration "
    b"worker workers process processed file File from value seconds model data loader dataset shard shards loaded "
    b"UserWarning: FutureWarning: is deprecated. Please use instead. Loading Using set by environment to torch. "
    b'/usr/lib/python3/site-packages/ line, in File "/ checkpoint checkpointing allocated allocate reserved tensor '
    b"torch.distributed torch/ ProcessGroupNCCL.cpp [PG ID 0 PG GUID 0(default_pg) Rank GPU GPUs node warnings.warn( "
    b"Endpoint complete completed check checking local the connection Connection operation device Device memory Memory "
    b"Warning: warnings failed Failed error Error found not find could Could from rank Rank ranks stream 0x7f2 "
    b"    2026-01-01 10:00:00,000 Traceback (most recent call last): self, kwargs, args, return metrics trainer logger "
)

Place = tuple[int, bytes]
"""Where a literal begins, and which."""
Flags = npt.NDArray[np.bool_]
Words32 = npt.NDArray[np.uint32]
_NUMBER_BITS = 16


class Engine(Protocol):
    """One way to find the literals."""

    def __init__(self, literals: list[bytes]) -> None: ...

    def find(self, chunk: Chunk) -> Indices:
        """Every place, with the number of the literal in the last 16 bits; in any order."""
        ...


class Found:
    """The places of literals, ascending, as columns."""

    __slots__ = ("_literals", "places", "which")

    def __init__(self, literals: Sequence[bytes], places: Indices, which: Indices) -> None:
        self._literals = literals
        self.places = places
        self.which = which
        """The numbers of the literals."""

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[Place]:
        return zip(self.places.tolist(), self.words(), strict=True)

    def words(self) -> list[bytes]:
        return list(map(self._literals.__getitem__, self.which.tolist()))

    def where(self, flags: Flags) -> Found:
        """Those of which the flag is set."""
        return Found(self._literals, self.places[flags], self.which[flags])


class Words:
    """Finds the literals in a chunk."""

    def __init__(self, literals: Iterable[bytes], engine: type[Engine] | None = None) -> None:
        self.literals = wanted = sorted(set(literals))
        self._engine = (engine or _best)(wanted) if wanted else None

    def find(self, chunk: Chunk) -> Found:
        found = np.sort(self._engine.find(chunk)) if self._engine else np.zeros(0, np.int64)
        return Found(self.literals, found >> _NUMBER_BITS, found & ((1 << _NUMBER_BITS) - 1))

    @cached_property
    def numbers(self) -> dict[bytes, int]:
        return {literal: number for number, literal in enumerate(self.literals)}

    def among(self, wanted: Collection[bytes]) -> Flags:
        """For each literal whether it is one of these."""
        return np.array([literal in wanted for literal in self.literals], np.bool_)


def _best(literals: list[bytes]) -> Engine:
    if library() is not None:
        return Native(literals)
    try:
        import hyperscan
    except ImportError:
        return Plain(literals)
    try:
        return Automaton(literals)
    except hyperscan.HyperscanError:  # a processor without the instructions that it needs
        return Plain(literals)


def _numbered(places: Sequence[Place], literals: list[bytes]) -> Indices:
    numbers = {literal: number for number, literal in enumerate(literals)}
    return np.array([place << _NUMBER_BITS | numbers[literal] for place, literal in places], np.int64)


class Native:
    """A loop in C over words of the text (`_looks.c`)."""

    def __init__(self, literals: list[bytes]) -> None:
        self._native = cast("Any", library())
        self._literals: object = self._native.literals(literals, [_shown(literal) for literal in literals])

    def find(self, chunk: Chunk) -> Indices:
        return np.frombuffer(self._native.find(self._literals, chunk.buffer, chunk.size), np.int64)

    def within(self, chunk: Chunk, begins: Indices, ends: Indices) -> Flags:
        """For each of these spans whether one of the literals stands in it."""
        found = self._native.within(self._literals, chunk.buffer, begins.tobytes(), ends.tobytes())
        return np.frombuffer(found, np.bool_)


def _shown(literal: bytes) -> bytes:
    """Where the least likely bytes of a literal begin, which stand for it: four for each way in which a long one may
    lie; of a short one four, and two neighbours among them."""
    rarity = literal.translate(_RARITY)
    if len(literal) <= 3:
        return b""
    if len(literal) < ALIGNED:
        pair = max(range(len(literal) - 1), key=lambda at: _pair_rarity(literal[at : at + 2]))
        return bytes((min(pair, len(literal) - 4), pair))
    often = _everyday()
    likely = [
        often.get(literal[at : at + 4], 0) * _MUCH - sum(rarity[at : at + 4])
        for at in range(min(len(literal), _REACH) - 3)
    ]
    return bytes(min(range(way, len(likely), 4), key=likely.__getitem__) for way in range(4))


class Automaton:
    """All literals in one pass of hyperscan."""

    def __init__(self, literals: list[bytes]) -> None:
        import hyperscan

        self._sizes = [len(literal) for literal in literals]
        self._database: Any = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        ids = list(range(len(literals)))
        self._database.compile(
            expressions=literals, ids=ids, elements=len(literals), flags=[0] * len(literals), literal=True
        )

    def find(self, chunk: Chunk) -> Indices:
        found: list[int] = []
        sizes, add = self._sizes, found.append

        def on_match(number: int, _from: int, to: int, _flags: int, _context: object) -> None:
            add((to - sizes[number]) << _NUMBER_BITS | number)

        self._database.scan(chunk.view[: chunk.size], match_event_handler=on_match)
        return np.array(found, np.int64)


class Plain:
    """Array operations alone."""

    def __init__(self, literals: list[bytes]) -> None:
        self._literals = literals
        self._long = _Long([literal for literal in literals if len(literal) >= ALIGNED])
        endings: dict[bytes, list[bytes]] = {}
        for literal in literals:
            if 3 < len(literal) < ALIGNED:
                endings.setdefault(literal[-3:].lower(), []).append(literal)
        self._families = [_Family(items) for items in endings.values() if len(items) > 2]
        self._single = [literal for items in endings.values() if len(items) <= 2 for literal in items]
        self._single += [literal for literal in literals if len(literal) <= 3]

    def find(self, chunk: Chunk) -> Indices:
        found = self._long.find(chunk)
        for family in self._families:
            found += family.find(chunk)
        for literal in self._single:
            found += [(place, literal) for place in places_of(chunk, literal).tolist()]
        return _numbered(found, self._literals)


def places_of(chunk: Chunk, literal: bytes) -> Indices:
    """Where a short literal begins: by its two neighbouring letters that are the rarest, then by the others."""
    text, size = chunk.text, chunk.size
    rare = [_RARITY[letter] for letter in literal]
    if (native := library()) is not None:
        return np.frombuffer(native.places(chunk.buffer, size, literal, rare.index(max(rare))), np.int64)
    if len(literal) < 2:
        return np.flatnonzero(text[:size] == literal[0])
    at = max(range(len(literal) - 1), key=lambda at: rare[at] + rare[at + 1])
    pair, pairs = _number(literal[at : at + 2]), (size + 1) // 2
    even = np.flatnonzero(text[: 2 * pairs].view("<u2") == pair)
    odd = np.flatnonzero(text[1 : 2 * pairs + 1].view("<u2") == pair)
    places = np.sort(np.concatenate((even * 2, odd * 2 + 1))) - at
    places = places[(places >= 0) & (places <= size - len(literal))]
    for other, letter in enumerate(literal):
        if other not in (at, at + 1):
            places = places[text[places + other] == letter]
    return places


class _Family:
    """Short literals with the same last three letters, but for case: found by those, then by the two before."""

    def __init__(self, literals: list[bytes]) -> None:
        self._letters = [letter | 0x20 for letter in literals[0][-3:]]
        self._owners: dict[int, list[bytes]] = {}
        for literal in literals:
            self._owners.setdefault(_number(literal[-4:]), []).append(literal)
        self._codes = np.array(sorted(self._owners), np.uint32)
        # For each four last bytes, what may stand before them.
        self._before = np.zeros((len(self._codes), 256), np.bool_)
        for row, code in enumerate(self._codes.tolist()):
            for literal in self._owners[code]:
                self._before[row, literal[-5] if len(literal) > 4 else slice(None)] = True

    def find(self, chunk: Chunk) -> list[Place]:
        text, buffer = chunk.text, chunk.buffer
        folded = text[: chunk.size] | np.uint8(0x20)
        first, second, third = self._letters
        hits = (folded[1:-2] == first) & (folded[2:-1] == second) & (folded[3:] == third)
        places = np.flatnonzero(hits)
        four = _overlapping(text)[places]
        near = np.minimum(np.searchsorted(self._codes, four), len(self._codes) - 1)
        right = (self._codes[near] == four) & self._before[near, text[places - 1]]
        found = []
        for place, code in zip(places[right].tolist(), four[right].tolist(), strict=True):
            for literal in self._owners[code]:
                begin = place + 4 - len(literal)
                if begin >= 0 and buffer.startswith(literal, begin):
                    found.append((begin, literal))
        return found


class _Long:
    """Literals of seven bytes and more, each by the seven that are the least likely in everyday lines."""

    def __init__(self, literals: list[bytes]) -> None:
        self._owners: dict[bytes, list[tuple[int, bytes]]] = {}
        for literal in literals:
            at = _window(literal)
            self._owners.setdefault(literal[at : at + ALIGNED], []).append((at, literal))
        self._windows = sorted(self._owners)
        # For each word of four bytes the windows that show it: how far it lies in them, and which.
        uses: dict[int, list[tuple[int, int]]] = {}
        for number, window in enumerate(self._windows):
            for shift in range(4):
                uses.setdefault(_number(window[shift : shift + 4]), []).append((shift, number))
        self._codes = np.array(sorted(uses), np.uint32)
        self._taken = np.zeros(_SLOTS, np.bool_)
        self._taken[_slot(self._codes)] = True
        self._counts = np.array([len(uses[code]) for code in sorted(uses)], np.int64)
        self._begins = np.concatenate((np.zeros(1, np.int64), np.cumsum(self._counts)[:-1]))
        self._uses = np.array([use for code in sorted(uses) for use in uses[code]], np.int64).reshape(-1, 2)
        self._first = np.array([_number(window[:4]) for window in self._windows], np.uint32)
        self._last = np.array([_number(window[3:]) for window in self._windows], np.uint32)

    def find(self, chunk: Chunk) -> list[Place]:
        if not self._windows:
            return []
        words: Words32 = np.frombuffer(chunk.view, "<u4", (chunk.size + 3) // 4)
        maybe = np.flatnonzero(self._taken.take(_slot(words)))
        near = np.minimum(np.searchsorted(self._codes, words[maybe]), len(self._codes) - 1)
        right = self._codes[near] == words[maybe]
        maybe, near = maybe[right] * 4, near[right]
        # A word may belong to several windows: one row for each.
        counts = self._counts[near]
        row = np.repeat(np.arange(len(maybe)), counts)
        use = self._uses[np.arange(len(row)) + np.repeat(self._begins[near] - np.cumsum(counts) + counts, counts)]
        start, window = maybe[row] - use[:, 0], use[:, 1]
        inside = start >= 0
        start, window = start[inside], window[inside]
        four = _overlapping(chunk.text)
        fits = (four[start] == self._first[window]) & (four[start + 3] == self._last[window])
        return self._owned(chunk, start[fits].tolist(), window[fits].tolist())

    def _owned(self, chunk: Chunk, starts: list[int], windows: list[int]) -> list[Place]:
        found, buffer, size = [], chunk.buffer, chunk.size
        for start, window in zip(starts, windows, strict=True):
            for at, literal in self._owners[self._windows[window]]:
                begin = start - at
                if begin >= 0 and begin + len(literal) <= size and buffer.startswith(literal, begin):
                    found.append((begin, literal))
        return found


def _overlapping(text: Bytes) -> Words32:
    """The four bytes at every place."""
    four: Words32 = np.ndarray((len(text) - 3,), "<u4", text, strides=(1,))
    return four


def _slot(words: Words32) -> Words32:
    slots: Words32 = (words * np.uint32(0x9E3779B1)) >> np.uint32(16)
    return slots


def _number(word: bytes) -> int:
    return int.from_bytes(word, "little")


def _window(literal: bytes) -> int:
    """Where the seven bytes of a literal begin that are the least likely in everyday lines."""
    return max(range(len(literal) - ALIGNED + 1), key=lambda at: _rarity(literal[at : at + ALIGNED]))


@cache
def _everyday() -> Counter[bytes]:
    return Counter(_EVERYDAY[at : at + 4] for at in range(len(_EVERYDAY) - 3))


@cache
def _pair_rarity(pair: bytes) -> tuple[bool, bool, int]:
    """Letters are preferred, since many literals share them, but not those of everyday words."""
    return _EVERYDAY.lower().count(pair.lower()) <= _FEW, pair.isalpha(), sum(pair.translate(_RARITY))


def _rarity(window: bytes) -> tuple[int, int]:
    everyday = sum(window[at : at + 4] in _everyday() for at in range(4))
    return -everyday, sum(map(_RARITY.__getitem__, window))
