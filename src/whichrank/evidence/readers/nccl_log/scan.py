"""A whole text is read: every line that is no call as text, calls in bulk, in bounded memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from whichrank.evidence.readers.nccl_log import bulk
from whichrank.evidence.readers.nccl_log import messages as meaning
from whichrank.evidence.readers.nccl_log.prefix import NcclLine, messages, plain
from whichrank.evidence.readers.nccl_log.skim import Channel, Crowd, Skimmer, message_of
from whichrank.evidence.readers.nccl_log.table import Caller, Table
from whichrank.evidence.readers.nccl_log.tails import kept_calls, read_places
from whichrank.evidence.text.chunks import CHUNK, Chunk, Chunks, Indices, Readable, Stream
from whichrank.evidence.text.repeated_lines import Held, Often, keys
from whichrank.evidence.text.words import places_of
from whichrank.records.nccl import NcclLog

_WORTH_BULK = 256
_FEW = 256
_SAMPLES = 256
"""Lines by which it is learnt who prints: more than processes of a host, or of some hosts."""
_ROUNDS = 12
_NEW_KEYS = 512
_KEYS = 65_536
_PATIENCE = 4
_NO_CALL = -1
_ALIKE = 64
"""Warnings that look alike and are read, the first of a process and the last."""
_CALL = b"opCount "

_FOLLOWS = np.zeros(256, np.bool_)
_FOLLOWS[list(b"IWATCDv")] = True
_NOWHERE = np.zeros(0, np.int64)


_Entry = tuple[int, bytes, bytes, list[NcclLine]]
"""Index of a line, the line as it is and without colours, and its messages."""


class Seekable(Stream, Readable, Protocol):
    """A stream that is read once, and then again in places."""


def scan_stream(stream: Seekable, source: str, keep: int | None = None) -> NcclLog:
    """Read a seekable stream. `keep` calls per communicator are kept in detail (default: by their number)."""
    scanner = Scanner(source, keep)
    scanner.feed(stream)
    return scanner.finish(stream)


def scan_bytes(data: bytes, source: str, keep: int | None = None) -> NcclLog:
    """Read a text that is in memory already."""
    return scan_stream(io.BytesIO(data), source, keep)


def _different(processes: Indices) -> list[int]:
    """The indices that occur. Counting is quicker than `np.unique`, which hashes."""
    found: list[int] = np.flatnonzero(np.bincount(processes[processes >= 0])).tolist()
    return found


def _apart(chunk: Chunk, lines: Indices) -> tuple[Indices, Indices]:
    """Other lines, and those with one message, which is a warning: where processes wrote into each other's lines there
    are several."""
    count = chunk.buffer.count
    spans = zip(chunk.starts[lines].tolist(), chunk.ends[lines].tolist(), strict=True)
    alone = [count(b" NCCL WARN ", begin, end) == 1 and count(b"NCCL ", begin, end) == 1 for begin, end in spans]
    warns = np.array(alone, np.bool_)
    return lines[~warns], lines[warns]


def _entry(at: int, text: bytes) -> _Entry:
    line = plain(text)
    return at, text, line, list(messages(line))


class Scanner:
    """The state of one reading."""

    def __init__(self, source: str, keep: int | None = None) -> None:
        self.log = NcclLog(source)
        self._keep = keep if keep is None else max(1, keep)
        self._table = Table(self.log)
        self._skimmer = Skimmer()
        self._shapes = bulk.Shapes()
        self._keys: dict[int, Caller | None] = {}
        self._bulk_failures = 0
        self._warnings = Often(_ALIKE)

    @property
    def limit(self) -> int:
        return self._keep if self._keep is not None else kept_calls(len(self._table.slots))

    def feed(self, stream: Stream) -> None:
        """Read the stream in chunks of whole lines."""
        chunks = Chunks(stream, CHUNK)
        for chunk in chunks:
            self.take(chunk)
        self.log.cut_end = chunks.cut

    def finish(self, stream: Seekable) -> NcclLog:
        """Read what waited, fetch the lines of the kept calls and hand out the record."""
        for held in self._warnings.held():
            for entry in messages(plain(held.text_in(stream))):
                self._table.warned(entry, held.number, held.skipped)
                self.log.nccl_lines += 1 + held.skipped
        for slot in filter(lambda slot: slot.total, self._table.slots):
            kept = read_places(stream, slot.places(self.limit))
            self.log.calls.append(self._table.calls(slot, kept))
        return self.log

    def take(self, chunk: Chunk) -> None:
        """Read one chunk, behind those before it."""
        self.log.lines += chunk.breaks
        if len(chunk.ends) < _WORTH_BULK or self._bulk_failures >= _PATIENCE or not self._in_bulk(chunk):
            self._one_by_one(chunk)

    def _one_by_one(self, chunk: Chunk) -> None:
        """Read every line that names NCCL, in the order of the file."""
        for at, text in chunk.lines(self._worth_reading(chunk, None)[0]):
            if glance := self._skimmer.glance(text):
                self._table.seen(glance, chunk.first + at)
                self.log.nccl_lines += 1
                continue
            if self._table.full and b" NCCL WARN " not in text:
                continue
            line = plain(text)
            found = list(messages(line))
            for entry in found:
                self._table.note(entry, chunk.place(at), self.limit)
            self._finish_line(text, line, found)
            self.log.nccl_lines += bool(found)

    def _in_bulk(self, chunk: Chunk) -> bool:
        """Count calls by shape and read the other lines; False when the chunk must be read in order."""
        slot_of = self._calls_by_shape(chunk)
        if slot_of is None:
            self._bulk_failures += 1
            return False
        rest, dull, channels = self._skim(chunk, slot_of)
        entries: list[_Entry] = []
        crowd = Crowd(self._table.room, self._skimmer)
        others, warnings = _apart(chunk, rest[dull < 0])
        for at, text in chunk.lines(others):
            if b" via " in text and (channel := self._skimmer.channel(text)):
                channels.append((chunk.first + at, channel, 1))
            elif b" NCCL WARN " in text or not crowd.turns_away(text):
                entries.append(_entry(at, text))
        if any(self._needs_order(at, found, slot_of) for at, _, _, found in entries):
            return False
        entries += [_entry(at, text) for at, text in self._new_warnings(chunk, warnings)]
        entries.sort(key=lambda entry: entry[0])
        self._note(chunk, entries, slot_of)
        self._table.connected(channels)
        for process in _different(dull):
            at = int(rest[dull == process][-1])
            self._table.seen((process, message_of(chunk.line(at))), chunk.first + at)
        self.log.nccl_lines += sum(count for _, _, count in channels) + int((dull >= 0).sum())
        self._add(chunk, slot_of)
        return True

    def _new_warnings(self, chunk: Chunk, lines: Indices) -> Iterator[tuple[int, bytes]]:
        """Warnings that are read now; of those that look like enough others the last wait for the end."""
        looks = keys(chunk, lines)
        left = self._warnings.pass_over(looks, chunk, lines, None) if len(lines) else lines
        for (at, text), which in zip(chunk.lines(lines[left]), left.tolist(), strict=True):
            if not self._warnings.holds(Held(chunk.first + at, text, None, ()), int(looks[which])):
                yield at, text

    def _skim(self, chunk: Chunk, slot_of: Indices) -> tuple[Indices, Indices, list[tuple[int, Channel, int]]]:
        """The lines of NCCL that are no counted calls, and whose they are where a glance is enough (else -1).

        Connections that need no reading are not among them."""
        rest, places = self._worth_reading(chunk, slot_of)
        if not self._skimmer.heads:
            self._learn_heads(chunk, rest)
        whose = self._skimmer.whose(chunk, rest, places)
        done, channels = self._skimmer.connections(chunk, rest, places, whose)
        left = ~done
        if self._table.full:  # of strangers only warnings are worth a look
            left &= (whose >= 0) | (chunk.text[places + len(b"NCCL ")] == ord("W"))
        rest, places, whose = rest[left], places[left], whose[left]
        dull = self._skimmer.dull(chunk, rest, places, whose)
        for process in _different(dull):
            if not self.log.processes[process].first_line:
                dull[np.argmax(dull == process)] = -1  # the first line of a process tells more than its message
        return rest, dull, channels

    def _note(self, chunk: Chunk, entries: list[_Entry], slot_of: Indices) -> None:
        """Take over lines that were read; what is a call after all is counted with the others."""
        for at, text, line, found in entries:
            for entry in found:
                if (slot := self._table.call(entry)) is not None:
                    slot_of[at] = slot
                    self._shapes.learn(text)
                else:
                    self._table.note(entry, chunk.place(at), self.limit)
            self._finish_line(text, line, found)
            self.log.nccl_lines += bool(found and slot_of[at] == _NO_CALL)

    def _learn_heads(self, chunk: Chunk, lines: Indices) -> None:
        """Who prints here, by some of the lines: then the others are skimmed from the beginning."""
        for _, text in chunk.lines(lines[:: len(lines) // _SAMPLES + 1]):
            found = list(messages(plain(text)))
            if len(found) == 1 and (process := self._table.process(found[0])) is not None:
                self._skimmer.learn(text, process)

    def _calls_by_shape(self, chunk: Chunk) -> Indices | None:
        """For each line the communicator it is a call on; None when shapes don't help with this chunk."""
        for _ in range(_ROUNDS):
            index, keys = bulk.match(chunk.text, chunk.starts, chunk.ends, self._shapes)
            distinct = bulk.distinct(keys)
            unknown = [key for key in distinct.tolist() if key not in self._keys]
            if len(unknown) > _NEW_KEYS:
                return None
            news = {key: chunk.line(int(index[np.argmax(keys == key)])) for key in unknown}
            if not self._learn([*news.values(), *chunk.samples(_CALL, index)]):
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
        learnt = [self._shapes.learn(line) for line in lines if _CALL in line]
        return any(learnt)

    def _needs_order(self, at: int, found: list[NcclLine], slot_of: Indices) -> bool:
        """Whether this line must be read after those before it: a pointer used again, two calls in a line."""
        calls = sum(b": opCount " in entry.message for entry in found)
        if calls > 1:
            return True
        for entry in found:
            slot = self._table.reborn(entry)
            if slot is not None and (self._table.slots[slot].total or (slot_of[:at] == slot).any()):
                return True
        return False

    def _add(self, chunk: Chunk, slot_of: Indices) -> None:
        for slot, count in enumerate(np.bincount(slot_of + 1)[1:].tolist()):
            if count:
                at = np.flatnonzero(slot_of == slot)
                self.log.nccl_lines += len(at)
                places = chunk.places(at, self.limit)
                self._table.slots[slot].add_many(places, len(at), chunk.first + int(at[0]), self.limit)

    def _worth_reading(self, chunk: Chunk, slot_of: Indices | None) -> tuple[Indices, Indices]:
        """Lines that are no counted calls and in which NCCL speaks, and where its name stands in each."""
        rest = None if slot_of is None else np.flatnonzero(slot_of == _NO_CALL)
        if rest is not None and len(rest) <= _FEW:
            spans = zip(chunk.starts[rest].tolist(), chunk.ends[rest].tolist(), strict=True)
            found = np.array([chunk.buffer.find(b"NCCL ", start, end) for start, end in spans], np.int64)
            return rest[found >= 0], found[found >= 0]
        if chunk.buffer.find(b"NCCL ", 0, chunk.size) < 0:
            return _NOWHERE, _NOWHERE
        places = places_of(chunk, b"NCCL ")
        # A level or the version follows; torch's own "ProcessGroupNCCL" and words about NCCL do not count.
        places = places[_FOLLOWS[chunk.text[places + 5]]]
        lines = chunk.index(places)
        wanted = np.diff(lines, prepend=-1) != 0
        if slot_of is not None:
            wanted &= slot_of[lines] == _NO_CALL
        return lines[wanted], places[wanted]

    def _finish_line(self, text: bytes, line: bytes, found: list[NcclLine]) -> None:
        if len(found) == 1 and (process := self._table.process(found[0])) is not None:
            self._skimmer.learn(text, process)
        if b"NCCL version" in line and (version := meaning.version(line)) and version not in self.log.versions:
            self.log.versions.append(version)
