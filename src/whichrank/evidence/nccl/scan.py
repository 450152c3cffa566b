"""A whole text is read: every line that is no call as text, calls in bulk, in bounded memory."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Protocol

import numpy as np

from whichrank.evidence.nccl import bulk
from whichrank.evidence.nccl import messages as meaning
from whichrank.evidence.nccl.chunk import NEWLINE, Chunk
from whichrank.evidence.nccl.prefix import NcclLine, messages, plain
from whichrank.evidence.nccl.skim import Skimmer
from whichrank.evidence.nccl.table import Caller, Table
from whichrank.evidence.nccl.tails import Readable, kept_calls, read_places
from whichrank.records.nccl import NcclLog

CHUNK = 1 << 20
"""Text and index arrays of one chunk stay within a core's second-level cache."""
_CARRIED = 8192
_WORTH_BULK = 256
_FEW = 256
_ROUNDS = 12
_NEW_KEYS = 512
_KEYS = 65_536
_PATIENCE = 4
_NO_CALL = -1
_NCCL = re.compile(rb"NCCL")

OtherLine = Callable[[int, bytes], None]
"""Takes the number and the text of a line in which NCCL has no part."""


class Seekable(Readable, Protocol):
    """What is needed of a binary stream."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...


def scan(stream: Seekable, source: str, keep: int | None = None, other: OtherLine | None = None) -> NcclLog:
    """Read a seekable stream. `keep` calls per communicator are kept in detail (default: by their number)."""
    scanner = Scanner(source, keep, other)
    scanner.feed(stream)
    return scanner.finish(stream)


def scan_bytes(data: bytes, source: str, keep: int | None = None, other: OtherLine | None = None) -> NcclLog:
    """Read a text that is in memory already."""
    return scan(io.BytesIO(data), source, keep, other)


class Scanner:
    """The state of one reading."""

    def __init__(self, source: str, keep: int | None, other: OtherLine | None) -> None:
        self.log = NcclLog(source)
        self._keep = keep if keep is None else max(1, keep)
        self._other = other
        self._table = Table(self.log)
        self._skimmer = Skimmer()
        self._shapes = bulk.Shapes()
        self._keys: dict[int, Caller | None] = {}
        self._bulk_failures = 0

    @property
    def limit(self) -> int:
        return self._keep if self._keep is not None else kept_calls(len(self._table.slots))

    def feed(self, stream: Seekable) -> None:
        """Read the stream in chunks of whole lines."""
        buffer = bytearray(CHUNK + bulk.PADDING)
        view = memoryview(buffer)
        filled = offset = 0
        while count := stream.readinto(view[filled:CHUNK]):
            filled += count
            end = buffer.rfind(b"\n", 0, filled) + 1
            if end:
                self._chunk(Chunk(view, end, offset, self.log.lines + 1))
            elif filled == CHUNK:
                end = CHUNK - _CARRIED  # a monstrous line: only its end is read
            view[: filled - end] = bytes(view[end:filled])
            filled, offset = filled - end, offset + end
        if filled:
            self.log.cut_end = True
            buffer[filled] = NEWLINE
            self._chunk(Chunk(view, filled + 1, offset, self.log.lines + 1))

    def finish(self, stream: Seekable) -> NcclLog:
        """Fetch the lines of the kept calls and hand out the record."""
        for slot in filter(lambda slot: slot.total, self._table.slots):
            kept = read_places(stream, slot.places(self.limit))
            self.log.calls.append(self._table.calls(slot, kept))
        return self.log

    def _chunk(self, chunk: Chunk) -> None:
        self.log.lines += len(chunk.ends)
        if len(chunk.ends) < _WORTH_BULK or self._bulk_failures >= _PATIENCE or not self._in_bulk(chunk):
            self._one_by_one(chunk)

    def _one_by_one(self, chunk: Chunk) -> None:
        """Read every line that names NCCL, in the order of the file."""
        for at, text in chunk.lines(self._worth_reading(chunk, None)):
            if glance := self._skimmer.glance(text):
                self._table.seen(glance, chunk.first + at)
                self.log.nccl_lines += 1
                continue
            line = plain(text)
            found = list(messages(line))
            for entry in found:
                self._table.note(entry, chunk.place(at), self.limit)
            self._finish_line(text, line, chunk.first + at, found)

    def _in_bulk(self, chunk: Chunk) -> bool:
        """Count calls by shape and read the other lines; False when the chunk must be read in order."""
        slot_of = self._calls_by_shape(chunk)
        if slot_of is None:
            self._bulk_failures += 1
            return False
        entries: list[tuple[int, bytes, bytes, list[NcclLine]]] = []
        glances: dict[int, tuple[int, bytes]] = {}
        skimmed = 0
        for at, text in chunk.lines(self._worth_reading(chunk, slot_of)):
            if b"NCCL" in text:
                if glance := self._skimmer.glance(text):
                    glances[glance[0]] = at, glance[1]
                    skimmed += 1
                    continue
                line = plain(text)
                entries.append((at, text, line, list(messages(line))))
            elif self._other is not None:
                entries.append((at, text, plain(text), []))
        if any(self._needs_order(at, found, slot_of) for at, _, _, found in entries):
            return False
        for at, text, line, found in entries:
            for entry in found:
                if (slot := self._table.call(entry)) is not None:
                    slot_of[at] = slot
                    self._shapes.learn(text)
                else:
                    self._table.note(entry, chunk.place(at), self.limit)
            self._finish_line(text, line, chunk.first + at, found)
        for process, (at, message) in glances.items():
            self._table.seen((process, message), chunk.first + at)
        self.log.nccl_lines += skimmed
        self._add(chunk, slot_of)
        return True

    def _calls_by_shape(self, chunk: Chunk) -> bulk.Indices | None:
        """For each line the communicator it is a call on; None when shapes don't help with this chunk."""
        for _ in range(_ROUNDS):
            index, keys = bulk.match(chunk.text, chunk.starts, chunk.ends, self._shapes)
            distinct = bulk.distinct(keys)
            unknown = [key for key in distinct.tolist() if key not in self._keys]
            if len(unknown) > _NEW_KEYS:
                return None
            news = {key: chunk.line(int(index[np.argmax(keys == key)])) for key in unknown}
            if not self._learn([*news.values(), *chunk.samples(index)]):
                break
        else:
            return None
        for key, line in news.items():
            found = list(messages(plain(line)))
            self._keys[key] = self._table.caller(found[0]) if len(found) == 1 else None
        slot_of = np.full(len(chunk.ends), _NO_CALL, np.int64)
        if len(distinct):
            slots = np.array([self._slot(key) for key in distinct.tolist()], np.int64)
            slot_of[index] = slots[np.searchsorted(distinct, keys)] if len(slots) > 1 else slots[0]
        if len(self._keys) > _KEYS:
            self._keys.clear()
        return slot_of

    def _slot(self, key: int) -> int:
        caller = self._keys[key]
        slot = None if caller is None else self._table.slot(caller)
        return _NO_CALL if slot is None else slot

    def _learn(self, lines: list[bytes]) -> bool:
        learnt = [self._shapes.learn(line) for line in lines if b"opCount " in line]
        return any(learnt)

    def _needs_order(self, at: int, found: list[NcclLine], slot_of: bulk.Indices) -> bool:
        """Whether this line must be read after those before it: a pointer used again, two calls in a line."""
        calls = sum(b": opCount " in entry.message for entry in found)
        if calls > 1:
            return True
        for entry in found:
            slot = self._table.reborn(entry)
            if slot is not None and (self._table.slots[slot].total or (slot_of[:at] == slot).any()):
                return True
        return False

    def _add(self, chunk: Chunk, slot_of: bulk.Indices) -> None:
        for slot, count in enumerate(np.bincount(slot_of + 1)[1:].tolist()):
            if count:
                at = np.flatnonzero(slot_of == slot)
                self.log.nccl_lines += len(at)
                places = chunk.places(at, self.limit)
                self._table.slots[slot].add_many(places, len(at), chunk.first + int(at[0]), self.limit)

    def _worth_reading(self, chunk: Chunk, slot_of: bulk.Indices | None) -> bulk.Indices:
        """Lines that are no counted calls and may concern NCCL (all, where others want theirs)."""
        rest = np.arange(len(chunk.ends)) if slot_of is None else np.flatnonzero(slot_of == _NO_CALL)
        if self._other is None and len(rest) > _FEW:
            starts = [found.start() for found in _NCCL.finditer(chunk.view[: chunk.size])]
            named = np.unique(np.searchsorted(chunk.ends, np.array(starts, np.int64)))
            rest = named if slot_of is None else named[slot_of[named] == _NO_CALL]
        return rest

    def _finish_line(self, text: bytes, line: bytes, number: int, found: list[NcclLine]) -> None:
        if found:
            self.log.nccl_lines += 1
        elif self._other is not None:
            self._other(number, line)
        if len(found) == 1 and (process := self._table.process(found[0])) is not None:
            self._skimmer.learn(text, process)
        if b"NCCL version" in line and (version := meaning.version(line)) and version not in self.log.versions:
            self.log.versions.append(version)
