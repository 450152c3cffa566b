"""The state of a host: limits, file systems, memory, mounts, processes, cgroup counters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from whichrank.evidence.text.host_marks import mark_of
from whichrank.evidence.text.host_of_path import host_of_path
from whichrank.evidence.text.plain_lines import plain_lines, reading_of
from whichrank.evidence.text.text_file import at_line_start, begins_line, is_text
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.host import HostState

if TYPE_CHECKING:
    from whichrank.evidence.readers.host_state.tables import Tables

NAME = "host_state"

_LONGEST, _HEADING = 4096, 300
_MOST_PARTS = 1024
_SHAPES = at_line_start(
    rb"(?:max locked memory|open files|core file size)\s+\(|Limit\s+Soft Limit\s+Hard Limit",
    rb"\s{0,8}ulimit -[a-zA-Z] {0,3}[:=]? {0,3}(?:\d|unl)",
    rb"Filesystem\s+(?:Type\s+)?(?:Inodes|1K-blocks|1024-blocks|1M-blocks|Size)\s",
    rb"MemTotal:\s{1,40}\d{1,15} kB|[ \t]{1,40}total\s{1,40}used\s{1,40}free\s",
    rb"\S{1,200} on /\S{0,200} type \S{1,30} \(|State:\t[A-Za-z] \(",
    rb"(?:[\w./-]{1,200}/(?:cpu\.stat|memory\.events):)?(?:oom_kill|nr_throttled|under_oom) \d{1,20}$",
)
_PROCESSES = at_line_start(rb"(?=.{0,200}\bPID\b)(?=.{0,200}\b(?:STAT|S)\b).{0,200}\b(?:COMMAND|CMD|ARGS)\b")
_PID_IN_PATH = re.compile(r"(?:^|[/._-])(?:proc[/._-]|pid[/._-]?)(\d{1,10})(?=[/._-]|$)")


_PROCESS_HEAD = re.compile(r"[=#*-]{1,20} {0,4}(?:pid|process)[ :=]{1,3}(\d{1,10})\b", re.IGNORECASE)
"""`== pid 4711`: what follows is about one process."""


_GREPPED = re.compile(r"([\w./-]{1,200}/)(cpu\.stat|memory\.events|cgroup\.procs):(.{1,80})$")
"""A line of a group's file behind its path, as `grep . task_*/cpu.stat` prints it."""


def sniff(head: bytes, name: str) -> bool:  # noqa: ARG001
    """True for text with one of the tables."""
    return is_text(head) and (begins_line(_SHAPES, head) or (b"PID" in head and begins_line(_PROCESSES, head)))


def read(item: Item) -> Reading:
    """One `HostState` for all that the file says, or for what it says below each heading or prompt of a host."""
    from whichrank.evidence.readers.host_state.tables import Tables  # many patterns, and most evidence has none

    parts, host = [(Tables(), -1)], None
    groups: dict[tuple[str | None, str], Tables] = {}
    members: dict[tuple[str | None, str], list[int]] = {}
    for number, line in plain_lines(item):
        mark, process = mark_of(line[:_HEADING]), _PROCESS_HEAD.match(line)
        if mark is not None and mark.host not in (None, host) and len(parts) < _MOST_PARTS:
            parts.append((Tables(), -1))
            host = mark.host
        elif process and len(parts) < _MOST_PARTS:
            parts.append((Tables(), int(process[1])))
        grepped = _GREPPED.match(line) if "/" in line[:_HEADING] else None
        if grepped is None:
            parts[-1][0].feed(number, line[:_LONGEST])
        elif grepped[2] == "cgroup.procs":
            members.setdefault((host, grepped[1]), []).append(int(grepped[3]) if grepped[3].isdecimal() else 0)
        elif len(groups) < _MOST_PARTS:
            groups.setdefault((host, grepped[1]), Tables()).feed(number, grepped[3])
    parts += [(tables, _only_one(members.get(group, ()))) for group, tables in groups.items()]
    for tables, _ in parts:
        tables.end_status()
    states = [state for tables, pid in parts if (state := _state(item, tables, pid)) is not None]
    if not states:
        return Reading([], "ignored", "no table of a host in it")
    return reading_of(item, states)


def _only_one(pids: Sequence[int]) -> int:
    """The process of a group that has no other."""
    return pids[0] if len(pids) == 1 else -1


def _state(item: Item, tables: Tables, pid: int) -> HostState | None:
    if not (
        tables.limits or tables.file_systems or tables.memory or tables.processes or tables.own_cgroup or tables.mounts
    ):
        return None
    host = tables.host or host_of_path(item.label)
    in_path = _PID_IN_PATH.search(item.label[-512:])
    rows = [row.line for row in tables.file_systems[:1]] + [row.line for row in tables.processes[:1]]
    line, words = next(iter(tables.places.values()), (min(rows, default=1), item.label.rsplit("/", 1)[-1]))
    return HostState(
        Ref(item.label, f"line {line}", words, None, host),
        host,
        pid if pid > 0 else int(in_path[1]) if in_path and tables.limits else None,
        dict(tables.limits),
        tuple(tables.file_systems),
        dict(tables.memory),
        tuple(tables.processes),
        dict(tables.own_cgroup),
        dict(tables.mounts),
        dict(tables.places),
    )
