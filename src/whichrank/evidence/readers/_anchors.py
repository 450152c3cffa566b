"""Finds any of hundreds of literals in big text, in one pass over every fourth byte.

A literal of seven or more bytes covers four aligned bytes wherever it begins. So only the aligned words of a chunk
are looked up, among the four words that each literal may show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

SHORTEST = 7
_SLOTS = 1 << 16
# Rough order of letters in English and in logs, commonest first.
_COMMON = b" etaoinsrhldcumfpgwybv.:,-_/=()[]0123456789kxjqz"
# Words of everyday lines: a window that lies in one of them finds too much.
_EVERYDAY = (
    b" NCCL INFO Channel via P2P/CUMEM/read AllReduce: opCount sendbuff recvbuff count datatype root comm nranks "
    b"[rank0]: INFO WARNING DEBUG root train training step iteration epoch loss time memory gpu learning grad_norm "
    b"samples tokens throughput global batch worker process processed file File from value elapsed seconds model data "
    b"UserWarning: is deprecated. Please use instead. Loading Using set by environment to torch.distributed torch/ "
    b'/usr/lib/python3/site-packages/ line, in File "/ checkpoint checkpointing allocated allocate reserved tensor '
    b"Endpoint complete completed check checking local the connection Connection operation device Device memory Memory "
    b"Warning: warnings failed Failed error Error found not find could Could from rank Rank ranks stream 0x7f2 "
)


class Anchors:
    """The places of a chunk where one of the literals may stand."""

    def __init__(self, literals: Iterable[bytes]) -> None:
        uses: dict[int, list[tuple[int, int, int]]] = {}
        for window in sorted({_window(literal) for literal in literals}):
            for shift in range(4):
                use = (shift, _number(window[:4]), _number(window[3:]))
                uses.setdefault(_number(window[shift : shift + 4]), []).append(use)
        self._codes = np.array(sorted(uses), np.uint32)
        self._taken = np.zeros(_SLOTS, np.bool_)
        self._taken[self._slot(self._codes)] = True
        # Layer by layer, the windows that each word may belong to: how far the word lies in it, its two halves.
        most = max(map(len, uses.values()))
        padded = [(uses[code] * most)[:most] for code in sorted(uses)]
        self._layers = np.array(padded, np.uint32).transpose(1, 2, 0)

    def _slot(self, words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        slots: npt.NDArray[np.uint32] = (words * np.uint32(0x9E3779B1)) >> np.uint32(16)
        return slots

    def places(self, chunk: bytes) -> list[int]:
        """Offsets, ascending, where the rarest part of a literal stands."""
        if len(chunk) < SHORTEST:
            return []
        words = np.frombuffer(chunk, "<u4", len(chunk) // 4)
        maybe = np.flatnonzero(self._taken.take(self._slot(words)))
        near = np.minimum(np.searchsorted(self._codes, words[maybe]), len(self._codes) - 1)
        right = self._codes[near] == words[maybe]
        maybe, near = maybe[right] * 4, near[right]
        four = np.ndarray((len(chunk) - 3,), "<u4", chunk, strides=(1,))
        found = np.zeros(len(maybe), np.bool_)
        for shift, first, last in self._layers:
            start = maybe - shift[near]
            inside = (start >= 0) & (start < len(four) - 3)
            start = np.where(inside, start, 0)
            found |= inside & (four[start] == first[near]) & (four[start + 3] == last[near])
        places: list[int] = maybe[found].tolist()
        return places

    def lines(self, chunk: bytes) -> Iterator[tuple[int, int]]:
        """Beginning and end of each line that may hold one of the literals."""
        end = -1
        for place in self.places(chunk):
            if place < end:
                continue
            start = chunk.rfind(b"\n", 0, place) + 1
            end = chunk.find(b"\n", place)
            end = len(chunk) if end < 0 else end
            yield start, end


def _number(word: bytes) -> int:
    return int.from_bytes(word, "little")


def _window(literal: bytes) -> bytes:
    """The seven bytes of a literal that are the least likely in everyday lines."""
    if len(literal) < SHORTEST:
        raise ValueError(f"{literal!r} is shorter than {SHORTEST} bytes")
    windows = [literal[at : at + SHORTEST] for at in range(len(literal) - SHORTEST + 1)]
    return max(windows, key=_rarity)


def _rarity(window: bytes) -> tuple[int, int]:
    grams = [window[at : at + 4] for at in range(4)]
    everyday = sum(gram in _EVERYDAY for gram in grams)
    return -everyday, sum(_COMMON.find(bytes((letter,)).lower()) % 64 for letter in window)
