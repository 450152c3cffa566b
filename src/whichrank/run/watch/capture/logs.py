"""What a job has written about itself: exceptions, error files of the elastic agent, output that went to files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from whichrank.evidence.bundle import Bundle
from whichrank.evidence.collectors import conditions, processes
from whichrank.run.watch.capture.files import document, read, tail
from whichrank.run.watch.job_processes import JobProcesses, Member
from whichrank.run.watch.samples import NAME, OLDER

ERROR_LIMIT = 16 << 20
OUTPUT_LIMIT = 4 << 20
"""Of each file: its newest part."""
HISTORY_LIMIT = 2 << 20


def keep_errors(job_processes: JobProcesses, bundle: Bundle, member: Member) -> None:
    """The traceback that the process left, and the error.json that torch's `record` wrote for the agent."""
    rank, pid = member.rank, member.words.pid
    error = read(job_processes.folder / f"{member.name}.error")
    if error:
        bundle.add(f"logs/rank_{rank}.error.txt", error, "error", rank=rank, pid=pid)
    path = places_of(job_processes, member).get("error_file")
    told = read(Path(path), ERROR_LIMIT) if isinstance(path, str) else b""
    if told:
        bundle.add(f"logs/rank_{rank}.error.json", told, "error file", rank=rank, pid=pid)


def keep_output(job_processes: JobProcesses, bundle: Bundle, members: Sequence[Member]) -> None:
    """What ranks printed into files (the agent's --log-dir, a scheduler's), of each file once."""
    ours = set()
    for descriptor in (1, 2):
        with suppress(OSError):
            ours.add(os.fstat(descriptor).st_ino)
    writers: dict[tuple[int, str], tuple[set[int], int]] = {}
    for member in members:
        for entry in _entries(places_of(job_processes, member).get("output")):
            key = (int(entry["inode"]), str(entry["path"]))
            ranks, start = writers.get(key, (set(), int(entry["size"])))
            writers[key] = (ranks | {member.rank}, min(start, int(entry["size"])))
    shared = 0
    for (inode, name), (ranks, start) in sorted(writers.items()):
        path = Path(name)
        with suppress(OSError):
            if inode in ours or path.stat().st_ino != inode:
                continue
            rank = next(iter(ranks)) if len(ranks) == 1 else None
            shared += rank is None
            place = f"logs/rank_{rank}.{path.stem[:40]}.log" if rank is not None else f"logs/output_{shared}.log"
            data = tail(path, OUTPUT_LIMIT, start)
            if data:
                bundle.add(place, data, "output", rank=rank)


def keep_history(bundle: Bundle, out: Path) -> None:
    """The time before, one line per rank and interval, its newest part; and the conditions that the job ran under."""
    data = tail(out / NAME, HISTORY_LIMIT)
    data = tail(out / OLDER, HISTORY_LIMIT - len(data)) + data if len(data) < HISTORY_LIMIT else data
    if data:
        bundle.add("history.jsonl", data, "history")
    if known := read(out / conditions.FILE, HISTORY_LIMIT):
        bundle.add(conditions.FILE, known, "conditions")


def places_of(job_processes: JobProcesses, member: Member) -> dict[str, Any]:
    """What the process wrote about its surroundings when it began; else what /proc says of them."""
    told = document(job_processes.folder / f"{member.name}.places")
    if told or not member.alive:
        return told
    output = []
    for descriptor in (1, 2):
        with suppress(OSError):
            path = Path(f"/proc/{member.words.pid}/fd/{descriptor}")
            if path.is_file():
                output.append({"path": str(path.readlink()), "inode": path.stat().st_ino, "size": 0})
    return {"error_file": processes.environ(member.words.pid).get("TORCHELASTIC_ERROR_FILE"), "output": output}


def _entries(value: Any) -> list[dict[str, Any]]:
    rows = value if isinstance(value, list) else []
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("inode"), int)
            and isinstance(row.get("path"), str) and isinstance(row.get("size"), int)]  # fmt: skip
