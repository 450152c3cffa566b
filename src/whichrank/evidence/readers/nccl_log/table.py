"""Who is in a log: processes by host and pid, communicators by process and pointer."""

from __future__ import annotations

import re
from collections import Counter
from operator import itemgetter

from whichrank.evidence.readers.nccl_log import messages as meaning
from whichrank.evidence.readers.nccl_log.prefix import NcclLine
from whichrank.evidence.readers.nccl_log.skim import Channel
from whichrank.evidence.readers.nccl_log.tails import Slot
from whichrank.records.nccl import CALL, CommCalls, CommInit, KeptLines, NcclLog, NcclProcess

# More than any job has in one file: a bound for hostile input.
_PROCESSES, _SLOTS = 16_384, 65_536
# The end of a call line, for lines that are damaged before it.
_TAIL = re.compile(rb" comm (0x[0-9a-f]{1,16}) \[nranks=(\d{1,9})\]")

Caller = tuple[int, str, int]
"""Index of the process, pointer of the communicator, number of its ranks (0: not said)."""


class Table:
    """Processes and communicators, found or made as lines name them."""

    def __init__(self, log: NcclLog) -> None:
        self._log = log
        self.slots: list[Slot] = []
        self._processes: dict[tuple[str | None, int | None], int] = {}
        self._hosts_of_pid: dict[int | None, list[str]] = {}
        self._current: dict[tuple[int, str], int] = {}
        self._generations: Counter[tuple[int, str]] = Counter()
        self._pointers: dict[int, set[str]] = {}

    @property
    def full(self) -> bool:
        """Whether no more processes are told apart: then only warnings are worth a look."""
        return len(self._processes) >= _PROCESSES

    @property
    def room(self) -> int:
        """How many more processes can be told apart."""
        return _PROCESSES - len(self._processes)

    def seen(self, glance: tuple[int, bytes], number: int) -> None:
        """A message of no use is the newest sign of life of its process."""
        process = self._log.processes[glance[0]]
        if number > process.last_line:
            process.last_line, process.last_text = number, meaning.shown(glance[1])

    def connected(self, channels: list[tuple[int, Channel, int]]) -> None:
        """More connections of kinds that are known, with the number of a line and how many there were."""
        kinds: Counter[tuple[int, str, bool]] = Counter()
        last: dict[int, tuple[int, Channel]] = {}
        for number, channel, count in channels:
            kinds[channel.process, channel.kind, channel.gdr] += count
            last[channel.process] = max(last.get(channel.process, (0, channel)), (number, channel), key=itemgetter(0))
        for (process, kind, gdr), count in kinds.items():
            meaning.count_channels(self._log.processes[process], kind, gdr, count)
        for process, (number, channel) in last.items():
            self.seen((process, channel.message), number)

    def note(self, entry: NcclLine, place: tuple[int, int, int], limit: int) -> None:
        """Take over one message, calls included."""
        if b": opCount " in entry.message:
            slot = self.call(entry)
            if slot is not None:
                self.slots[slot].add(place, limit)
            elif (process := self.process(entry)) is not None:
                self._log.processes[process].unplaced_calls += 1
            return
        process = self.process(entry)
        if process is None:
            return
        slot = self.reborn(entry)
        if slot is not None and self.slots[slot].total:
            del self._current[process, self.slots[slot].comm]
        meaning.apply(self._log.processes[process], entry, place[2])

    def warned(self, entry: NcclLine, number: int, skipped: int) -> None:
        """Take over a warning after lines behind it, and count those before it that were left out."""
        process = self.process(entry)
        if process is None:
            return
        record = self._log.processes[process]
        newest, words = record.last_line, record.last_text
        meaning.apply(record, entry, number)
        if newest > number:
            record.last_line, record.last_text = newest, words
        record.warnings_total += skipped
        if len(record.warnings) > 1 and record.warnings[-2].line > number:
            record.warnings.sort(key=lambda warning: warning.line)

    def call(self, entry: NcclLine) -> int | None:
        """The communicator of a call line; None for other lines and for calls that can't be placed."""
        caller = self.caller(entry)
        return None if caller is None else self.slot(caller)

    def caller(self, entry: NcclLine) -> Caller | None:
        """Who calls, as long as the pointer means the same communicator."""
        found = CALL.search(entry.message) if b"opCount " in entry.message else None
        process = self.process(entry) if found else None
        if found is None or process is None:
            return None
        if found[4] is not None:
            return process, found[4].decode("ascii"), int(found[5])
        if tail := _TAIL.search(entry.message, found.end()):
            return process, tail[1].decode("ascii"), int(tail[2])
        # Cut before its communicator: no question where there is only one.
        pointers = self._pointers.get(process, set())
        return (process, next(iter(pointers)), 0) if len(pointers) == 1 else None

    def reborn(self, entry: NcclLine) -> int | None:
        """The communicator known at the pointer for which this message announces a new one."""
        if b"Init " not in entry.message:
            return None
        init = meaning.started(entry.message)
        process = self.process(entry) if init else None
        if init is None or process is None:
            return None
        self._pointers.setdefault(process, set()).add(init.comm)
        return self._current.get((process, init.comm))

    def calls(self, slot: Slot, kept: KeptLines) -> CommCalls:
        """The record of one communicator's calls."""
        process = self._log.processes[slot.process]
        init = _init_of(process, slot)
        process.first_line = min(process.first_line or slot.first_line, slot.first_line)
        process.last_line = max(process.last_line, int(kept.numbers[-1]) if len(kept) else 0)
        nodes = [item for item in process.nodes if item.comm == slot.comm and item.line < slot.first_line]
        rank = init.rank if init else nodes[-1].rank if nodes else None
        nranks = init.nranks if init else slot.nranks
        comm_id = init.comm_id if init else None
        return CommCalls(process, slot.comm, slot.generation, comm_id, rank, nranks, slot.total, kept)

    def process(self, entry: NcclLine) -> int | None:
        key = (entry.host, entry.pid)
        known = self._processes.get(key)
        if known is not None:
            return known
        if entry.glued and entry.host:
            # The end of the other message looks like part of the name: "stream 0x2083ed30vm:759:759".
            for host in self._hosts_of_pid.get(entry.pid, ()):
                if entry.host.endswith(host):
                    return self._processes[host, entry.pid]
        if len(self._processes) >= _PROCESSES:
            return None
        self._log.processes.append(NcclProcess(self._log.source, entry.host, entry.pid))
        self._processes[key] = len(self._log.processes) - 1
        if entry.host:
            self._hosts_of_pid.setdefault(entry.pid, []).append(entry.host)
        return self._processes[key]

    def slot(self, caller: Caller) -> int | None:
        """The communicator at this pointer now, made if it is new."""
        process, comm, nranks = caller
        known = self._current.get((process, comm))
        if known is not None:
            return known
        if len(self.slots) >= _SLOTS:
            return None
        generation = self._generations[process, comm]
        self._generations[process, comm] += 1
        self.slots.append(Slot(process, comm, generation, nranks or None))
        self._current[process, comm] = len(self.slots) - 1
        self._pointers.setdefault(process, set()).add(comm)
        return len(self.slots) - 1


def _init_of(process: NcclProcess, slot: Slot) -> CommInit | None:
    """The newest initialisation of this pointer before its first call; the one with a commId first."""
    before = [init for init in process.inits if init.comm == slot.comm and init.line < slot.first_line]
    if not before:
        return None
    last = before[-1]
    if last.comm_id is None and len(before) > 1 and before[-2].phase == "start":
        return before[-2]
    return last
