"""How long operations stayed open, from flight-recorder dumps: the measure of a timeout."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from whichrank.model.contracts import Item
from whichrank.model.errors import UsageError
from whichrank.model.evidence import Ref
from whichrank.records.dump import COMPLETED, Dump
from whichrank.records.settings import ObservedWait

KEPT = 3
"""Longest waits that are kept of each group: more would say the same."""
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def read_dumps(paths: Iterable[Path]) -> list[Dump]:
    """The dumps among these files."""
    from whichrank.evidence.readers import flight_recorder

    found: list[Dump] = []
    for path in paths:
        status = path.stat()
        reading = flight_recorder.read(Item(path, str(path), status.st_size, status.st_mtime_ns))
        found += [record for record in reading.records if isinstance(record, Dump)]
    return found


def observed(dumps: Iterable[Dump]) -> list[ObservedWait]:
    """The longest waits of each group that ended, and those that did not.

    An operation is open on a rank from its enqueueing until its end; where the end is not recorded (Gloo),
    until the last rank has entered it.
    """
    entered: dict[tuple[str, int], list[_Entry]] = {}
    for dump in dumps:
        for entry in _entries(dump):
            entered.setdefault((entry.group, entry.seq), []).append(entry)
    waits: dict[str, list[ObservedWait]] = {}
    for (group, _seq), entries in entered.items():
        waits.setdefault(group, []).append(_wait(group, entries))
    kept: list[ObservedWait] = []
    for found in waits.values():
        found.sort(key=lambda wait: -wait.seconds)
        kept += [wait for wait in found if wait.ended][:KEPT] + [wait for wait in found if not wait.ended][:KEPT]
    return kept


class _Entry:
    __slots__ = ("created", "done", "end", "group", "newest", "op", "ref", "seq", "timeout_s")

    def __init__(self, dump: Dump, index: int) -> None:
        group, call = dump.groups[int(dump.group[index])], dump.calls[int(dump.call[index])]
        self.group = group.name or "default"
        self.seq = int(dump.seq[index])
        self.op = call.op
        self.created = int(dump.created_ns[index])
        self.end = int(dump.completed_ns[index])
        self.done = bool(dump.state[index] == COMPLETED or (dump.retired[index] and call.backend == "gloo"))
        self.newest = dump.newest_ns
        self.timeout_s = None if call.timeout_ms is None else call.timeout_ms / 1000
        self.ref = Ref(dump.source, f"entry {int(dump.record_id[index])}", f"{call.op} seq {self.seq}", dump.rank)


def _entries(dump: Dump) -> Iterator[_Entry]:
    for index in range(len(dump)):
        if not dump.calls[int(dump.call[index])].p2p:
            yield _Entry(dump, index)


def _wait(group: str, entries: list[_Entry]) -> ObservedWait:
    first = min(entries, key=lambda entry: entry.created)
    ended = all(entry.done for entry in entries)
    ends = [first.end, *(entry.created for entry in entries)] if ended else [entry.newest for entry in entries]
    until = max(ends)
    return ObservedWait(first.op, group, max(0, until - first.created) / 1e9, first.timeout_s, ended, first.ref)


def given_gap(text: str, timeout_s: float | None) -> ObservedWait:
    """`checkpoint=15m`: a gap that the user knows to be legitimate."""
    match = re.fullmatch(r"([\w -]+)=(\d+(?:\.\d+)?)(s|m|min|h)?", text.strip())
    if match is None:
        raise UsageError(f"--gap {text} is not understood", "Write it as checkpoint=15m or step=2.5s.")
    seconds = float(match[2]) * _UNITS[match[3] or ""]
    return ObservedWait(match[1], "all", seconds, timeout_s, ended=True, ref=Ref("--gap", match[1], text))
