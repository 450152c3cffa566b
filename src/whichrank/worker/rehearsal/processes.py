"""How much processor time processes have used, from /proc."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def _fields(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def cpu_ticks(pid: int) -> int:
    """User and system time of one process, in clock ticks; 0 once it has gone."""
    fields = _fields(Path(f"/proc/{pid}/stat"))
    return int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0


def tree_ticks(pids: Iterable[int]) -> int:
    """The same, with all descendants: a rank's data workers work for it."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            fields = _fields(folder / "stat")
            if len(fields) > 12:
                parents[int(folder.name)] = int(fields[1])
    wanted = set(pids)
    while True:
        more = {pid for pid, parent in parents.items() if parent in wanted} - wanted
        if not more:
            return sum(map(cpu_ticks, wanted))
        wanted |= more


def descendants(pid: int) -> list[int]:
    """All processes below this one."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            fields = _fields(folder / "stat")
            if len(fields) > 1:
                parents[int(folder.name)] = int(fields[1])
    found: set[int] = set()
    while True:
        more = {child for child, parent in parents.items() if parent == pid or parent in found} - found
        if not more:
            return sorted(found)
        found |= more
