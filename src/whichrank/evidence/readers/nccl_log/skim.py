"""Messages that hold nothing of use, told by a glance: most of a log with every subsystem on."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from whichrank.evidence.readers.nccl_log.messages import (
    OPENINGS,
    SIGN_WORDS,
    SIGNS,
    TEXT_KEPT,
    channel_kind,
    matters,
)
from whichrank.evidence.text.chunks import Chunk, Indices
from whichrank.evidence.text.native import library
from whichrank.evidence.text.words import Native, places_of

_INFO = b" NCCL INFO "
_HEADS = 8192
_CHANNELS = 16
"""Connections of one process and kind that are read; the others are counted."""
_NOBODY = -1
_LEVEL = np.uint64(int.from_bytes(b"NCCL INF", "little"))
_OPENING = np.array(sorted(int.from_bytes(opening, "little") for opening in OPENINGS), np.uint32)
_BEHIND = len(_INFO) - 1
_DIGITS = b"0123456789"
_WORTH_IT = 64
_ODD = np.uint64(0x9E3779B97F4A7C15)
_WEIGHTS = np.random.default_rng(2).integers(1, 1 << 63, 256).astype(np.uint64)
_WEIGHTS[np.frombuffer(_DIGITS, np.uint8)] = 0
"""For every byte; messages of one shape have the same sum."""

Flags = npt.NDArray[np.bool_]

Glance = tuple[int, bytes]
"""Index of the process, and the message."""


class Channel(NamedTuple):
    """A connection between two ranks that needs no reading."""

    process: int
    message: bytes
    kind: str
    gdr: bool


class _Seen(Struct):
    kind: str
    gdr: bool
    count: int = 0


class Skimmer:
    """Remembers which process prints which prefix."""

    def __init__(self) -> None:
        self.heads: dict[bytes, int] = {}
        self._channels: dict[tuple[int, bytes], _Seen] = {}

    def learn(self, line: bytes, process: int) -> None:
        """This line, with one message only, was read: its prefix belongs to this process."""
        end = line.find(_INFO)
        if end > 0 and line[end - 1] == ord("]"):
            if len(self.heads) >= _HEADS:
                self.heads.clear()
            self.heads[_head(line, end)] = process

    def glance(self, line: bytes) -> Glance | None:
        """Process and message of a line that needs no reading; None for one that does."""
        end = line.find(_INFO)
        process = self.heads.get(_head(line, end)) if end > 0 else None
        if process is None:
            return None
        message = line[end + len(_INFO) :]
        return None if matters(message) else (process, message)

    def channel(self, line: bytes) -> Channel | None:
        """What a line about a channel tells, where enough lines of this process and kind were read."""
        end = line.find(_INFO)
        process = self.heads.get(_head(line, end)) if end > 0 else None
        if process is None:
            return None
        message = line[end + len(_INFO) :]
        if b"NCCL " in message:
            return None  # two processes wrote into one line
        shape = (process, _shape(message))
        seen = self._channels.get(shape)
        if seen is None:
            kind = channel_kind(message)
            if kind is None or len(self._channels) >= _HEADS:
                return None
            seen = self._channels[shape] = _Seen(*kind)
        seen.count += 1
        return Channel(process, message, seen.kind, seen.gdr) if seen.count > _CHANNELS else None

    def dull(self, chunk: Chunk, lines: Indices, places: Indices, whose: Indices) -> Indices:
        """As `glance` for many lines, with the place of "NCCL" in each: the processes, or -1 for a line to be read."""
        whose, text = whose.copy(), chunk.text
        told = _informs(chunk, places)
        begins = places + _BEHIND
        four = np.ndarray((len(text) - 3,), "<u4", text, strides=(1,))[begins]
        opening = _OPENING[np.minimum(np.searchsorted(_OPENING, four), len(_OPENING) - 1)] == four
        ends = chunk.ends[lines]
        # "NCCL INFO" alone, at the very end of a line, is left to be read.
        fits = (whose != _NOBODY) & told & ~opening & (begins < ends) & (ends - begins <= TEXT_KEPT)
        some = np.flatnonzero(fits)
        fits[some[_with_signs(chunk, begins[some], ends[some])]] = False
        whose[~fits] = _NOBODY
        return whose

    def connections(
        self, chunk: Chunk, lines: Indices, places: Indices, whose: Indices
    ) -> tuple[Flags, list[tuple[int, Channel, int]]]:
        """As `channel` for many lines: which are done with, and of each kind the last, its line and how many."""
        done, found = np.zeros(len(lines), np.bool_), list[tuple[int, Channel, int]]()
        connects = np.zeros(len(chunk.ends), np.bool_)
        connects[chunk.index(places_of(chunk, b" via "))] = True
        known = np.flatnonzero((whose != _NOBODY) & _informs(chunk, places) & connects[lines])
        spans = zip(chunk.starts[lines[known]].tolist(), chunk.ends[lines[known]].tolist(), strict=True)
        count = chunk.buffer.count
        some = known[np.array([count(b"NCCL ", start, end) == 1 for start, end in spans], np.bool_)]
        if len(some) < _WORTH_IT:
            return done, found
        ends = chunk.ends[lines[some]]
        begins = np.minimum(places[some] + _BEHIND, ends)
        shapes = _weighed(chunk, begins, ends) * _ODD + whose[some].astype(np.uint64)
        order = np.argsort(shapes, kind="stable")
        for alike in np.split(some[order], np.flatnonzero(np.diff(shapes[order])) + 1):
            process = int(whose[alike[0]])
            seen = self._channels.get((process, _shape(message_of(chunk.line(int(lines[alike[0]]))))))
            rest = alike[max(0, _CHANNELS - seen.count) :] if seen is not None else alike[:0]
            if seen is None or not len(rest):
                continue
            done[rest] = True
            last = int(lines[rest[-1]])
            message = message_of(chunk.line(last))
            found.append((chunk.first + last, Channel(process, message, seen.kind, seen.gdr), len(rest)))
        return done, found

    def whose(self, chunk: Chunk, lines: Indices, places: Indices) -> Indices:
        """The process that prints each line, by its prefix; -1 where that is not known."""
        whose = np.full(len(lines), _NOBODY, np.int64)
        starts, text = chunk.starts[lines], chunk.text
        for size in {len(head) for head in self.heads}:
            begins = places - 1 - size
            alone = (begins == starts) | ((begins > starts) & (text[np.maximum(begins - 1, 0)] == 32))
            index = np.flatnonzero(alone)
            heads = np.ndarray((len(text) - size + 1,), f"V{size}", text, strides=(1,))[begins[index]]
            known = [self.heads.get(head, _NOBODY) for head in map(bytes, heads.tolist())]
            whose[index] = np.maximum(whose[index], np.array(known, np.int64))
        return whose


class Crowd:
    """Lines of strangers beyond those that can be told apart: the same as behind a full table."""

    def __init__(self, room: int, skimmer: Skimmer) -> None:
        self._room, self._skimmer = room, skimmer
        self._new: set[bytes] = set()

    def turns_away(self, line: bytes) -> bool:
        if self._room <= 0:
            return True
        end = line.find(_INFO)
        head = _head(line, end) if end > 0 else b""
        if not head or head in self._skimmer.heads or head in self._new:
            return False
        self._new.add(head)
        return len(self._new) > self._room


def _with_signs(chunk: Chunk, begins: Indices, ends: Indices) -> Flags:
    """Which of these messages have something in them that tells, all searched in one go."""
    if library() is not None:
        return _signs().within(chunk, begins, ends)
    view = chunk.view
    text = b"\n".join([view[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)])
    found = np.array([sign.start() for sign in SIGNS.finditer(text)], np.int64)
    flags = np.zeros(len(begins), np.bool_)
    flags[np.searchsorted(np.cumsum(ends - begins + 1), found, side="right")] = True
    return flags


@cache
def _signs() -> Native:
    return Native(list(SIGN_WORDS))


def _weighed(chunk: Chunk, begins: Indices, ends: Indices) -> npt.NDArray[np.uint64]:
    """The sum of the weights of the bytes of each message."""
    text = np.concatenate([chunk.text[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)])
    before = np.zeros(len(text) + 1, np.uint64)
    np.cumsum(_WEIGHTS[text], out=before[1:])
    edges = np.cumsum(ends - begins)
    sums: npt.NDArray[np.uint64] = before[edges] - before[edges - (ends - begins)]
    return sums


def _informs(chunk: Chunk, places: Indices) -> Flags:
    told: Flags = np.ndarray((len(chunk.text) - 7,), "<u8", chunk.text, strides=(1,))[places] == _LEVEL
    return told


def _shape(message: bytes) -> bytes:
    return message.translate(None, _DIGITS)


def message_of(line: bytes) -> bytes:
    """What stands behind the level of a line that a glance was enough for."""
    return line[line.find(_INFO) + len(_INFO) :]


def _head(line: bytes, end: int) -> bytes:
    """ "host:pid:tid [device]", with what a launcher put before it without a space."""
    return line[line.rfind(b" ", 0, line.rfind(b" ", 0, end)) + 1 : end]
