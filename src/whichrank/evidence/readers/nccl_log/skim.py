"""Messages that hold nothing of use, told by a glance: most of a log with every subsystem on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whichrank.evidence.readers.nccl_log.messages import OPENINGS, SIGNS, TEXT_KEPT, channel_kind, matters
from whichrank.evidence.text.chunks import Chunk, Indices

_INFO = b" NCCL INFO "
_HEADS = 8192
_CHANNELS = 16
"""Connections of one process and kind that are read; the others are counted."""
_NOBODY = -1
_LEVEL = np.uint64(int.from_bytes(b"NCCL INF", "little"))
_OPENING = np.array(sorted(int.from_bytes(opening, "little") for opening in OPENINGS), np.uint32)
_BEHIND = len(_INFO) - 1

Glance = tuple[int, bytes]
"""Index of the process, and the message."""


class Channel(NamedTuple):
    """A connection between two ranks that needs no reading."""

    process: int
    message: bytes
    kind: str
    gdr: bool


@dataclass(slots=True)
class _Seen:
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
        shape = (process, message.translate(None, b"0123456789"))
        seen = self._channels.get(shape)
        if seen is None:
            kind = channel_kind(message)
            if kind is None or len(self._channels) >= _HEADS:
                return None
            seen = self._channels[shape] = _Seen(*kind)
        seen.count += 1
        return Channel(process, message, seen.kind, seen.gdr) if seen.count > _CHANNELS else None

    def warns(self, line: bytes) -> int | None:
        """Which process prints this warning, by its prefix."""
        end = line.find(b"] ") + 1
        return self.heads.get(_head(line, end)) if end else None

    def dull(self, chunk: Chunk, lines: Indices, places: Indices) -> Indices:
        """As `glance` for many lines, with the place of "NCCL" in each: the processes, or -1 for a line to be read."""
        whose = self._whose(chunk, lines, places)
        text = chunk.text
        told = np.ndarray((len(text) - 7,), "<u8", text, strides=(1,))[places] == _LEVEL
        begins = places + _BEHIND
        four = np.ndarray((len(text) - 3,), "<u4", text, strides=(1,))[begins]
        opening = _OPENING[np.minimum(np.searchsorted(_OPENING, four), len(_OPENING) - 1)] == four
        ends = chunk.ends[lines]
        # "NCCL INFO" alone, at the very end of a line, is left to be read.
        fits = (whose != _NOBODY) & told & ~opening & (begins < ends) & (ends - begins <= TEXT_KEPT)
        some = np.flatnonzero(fits)
        fits[some[_with_signs(chunk, begins[some].tolist(), ends[some].tolist())]] = False
        whose[~fits] = _NOBODY
        return whose

    def _whose(self, chunk: Chunk, lines: Indices, places: Indices) -> Indices:
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


def _with_signs(chunk: Chunk, begins: list[int], ends: list[int]) -> Indices:
    """Which of these messages have something in them that tells, all searched in one go."""
    view = chunk.view
    text = b"\n".join([view[begin:end] for begin, end in zip(begins, ends, strict=True)])
    edges = np.cumsum(np.subtract(ends, begins) + 1)
    found = np.array([sign.start() for sign in SIGNS.finditer(text)], np.int64)
    return np.searchsorted(edges, found, side="right")


def message_of(line: bytes) -> bytes:
    """What stands behind the level of a line that a glance was enough for."""
    return line[line.find(_INFO) + len(_INFO) :]


def _head(line: bytes, end: int) -> bytes:
    """ "host:pid:tid [device]", with what a launcher put before it without a space."""
    return line[line.rfind(b" ", 0, line.rfind(b" ", 0, end)) + 1 : end]
