"""Writes the flight-recorder dumps that the ranks of a pretend job would leave behind."""

from __future__ import annotations

import json
import os
import pickle
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.jobs.pretend import Job, Place, Plan, build, groups_of, members
from tests.jobs.pretend_run import Entry, Play
from whichrank.evidence.readers import flight_recorder
from whichrank.model.contracts import Item
from whichrank.records.dump import Dump

TIMEOUT_NS = 600_000_000_000
HOST = 4
"""Ranks per host: they share a clock."""


@dataclass
class Written:
    """A folder of dumps and the truth about them."""

    folder: Path
    job: Job
    lost: tuple[int, ...]


def group_name(plan: Plan, group: tuple[str, int]) -> tuple[str, str]:
    """Name and description; names count up over the whole job, or repeat for every axis."""
    axis, number = group
    if axis == "world":
        return "0", "default_pg"
    base = {"tp": 1, "dp": 2, "pp": 3}[axis]
    return str(base if plan.repeat_names else base * 1000 + number), axis


def frames(place: Place | None) -> list[dict[str, Any]]:
    if place is None:
        return []
    file, line, function = place
    library = "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
    stack = [{"name": "wrapper", "filename": library, "line": 81}]
    stack.append({"name": function, "filename": f"/srv/job/{file}", "line": line})
    if function != "main":
        stack.append({"name": "main", "filename": "/srv/job/train.py", "line": 44})
    return stack


class Recorder:
    """One rank's ring."""

    def __init__(self, plan: Plan, rank: int, offset: int, now: int) -> None:
        self.plan, self.rank, self.offset, self.now = plan, rank, offset, now
        self.groups = list(groups_of(plan, rank).values())
        self.groups.sort(key=lambda group: group[0] != "world")
        self.seq: dict[tuple[str, int], int] = {}
        self.p2p_seq: dict[tuple[str, int], int] = {}
        self.count = 0
        self.rows: list[dict[str, Any]] = []

    def add(self, entry: Entry) -> None:
        op, gloo = entry.op, self.plan.backend == "gloo"
        if op.peer is None:
            self.seq[op.group] = self.seq.get(op.group, 0) + 1
        else:
            self.p2p_seq[op.group] = self.p2p_seq.get(op.group, 0) + 1
            if gloo:  # sends and receives are not recorded there
                return
        self.rows += [self._row(entry, part) for part in range(op.parts)]

    def _row(self, entry: Entry, part: int) -> dict[str, Any]:
        op, plan, gloo = entry.op, self.plan, self.plan.backend == "gloo"
        mine = members(plan, op.group)
        done = entry.done if entry.done is not None and entry.done <= self.now else None
        begun = entry.begun is not None and entry.begun <= self.now and plan.timing and not gloo
        size = {"all_gather": (1, len(mine)), "reduce_scatter": (len(mine), 1)}.get(op.name, (1, 1))
        label = op.name
        if op.peer is not None:
            arrow = "->" if op.name == "send" else "<-"
            label = f"{op.name} {mine.index(self.rank)}{arrow}{mine.index(op.peer)}"
        state = "completed" if done else "started" if begun else "scheduled"
        row = {
            "frames": frames(op.place),
            "record_id": self.count,
            "pg_id": self.groups.index(op.group),
            "process_group": group_name(plan, op.group),
            "thread_name": "pt_main_thread" if op.place else "pt_autograd_0",
            "thread_id": "7",
            "collective_seq_id": self.seq.get(op.group, 0),
            "p2p_seq_id": self.p2p_seq.get(op.group, 0),
            "op_id": self.count,
            "profiling_name": f"{plan.backend}:{label}",
            "time_created_ns": entry.issued + self.offset,
            "input_sizes": [[op.numel * size[0] + part]],
            "input_dtypes": [op.dtype],
            "output_sizes": [[op.numel * size[1] + part]],
            "output_dtypes": [op.dtype],
            "state": "scheduled" if gloo else state,
            "time_discovered_started_ns": (entry.begun or 0) + self.offset if begun and done else None,
            "time_discovered_completed_ns": done + self.offset if done and not gloo else None,
            "retired": done is not None,
            "timeout_ms": 600_000,
            "is_p2p": op.peer is not None,
        }
        if done and begun:
            row["duration_ms"] = (done - (entry.begun or 0)) / 1e6
        self.count += 1
        return row

    def dump(self) -> dict[str, Any]:
        names = {group_name(self.plan, group): members(self.plan, group) for group in self.groups}
        config = {
            name: {"name": name, "desc": desc, "ranks": json.dumps(ranks)} for (name, desc), ranks in names.items()
        }
        if self.plan.backend == "gloo":
            config = {"": {"name": "", "desc": "", "ranks": "[]"}}
        status = {}
        for number, group in enumerate(self.groups):
            if group in self.seq:
                done = [r["collective_seq_id"] for r in self.rows if r["pg_id"] == number and r["state"] == "completed"]
                status[str(number)] = {
                    "last_enqueued_collective": self.seq[group],
                    "last_started_collective": -1,
                    "last_completed_collective": max(done, default=-1),
                }
        return {
            "version": "2.10",
            "pg_config": config,
            "comm_lib_version": "" if self.plan.backend == "gloo" else "2.28.9",
            "pg_status": status,
            "entries": self.rows[-self.plan.wrap :],
        }


def as_json(dump: dict[str, Any]) -> str:
    entries = [{k: 0 if v is None else v for k, v in e.items() if k != "frames"} for e in dump["entries"]]
    status = {k: {name: str(n) for name, n in v.items()} for k, v in dump["pg_status"].items()}
    return json.dumps({**dump, "pg_status": status, "entries": entries})


def store(folder: Path, prefix: str, rank: int, dump: dict[str, Any], plan: Plan, written_ns: int) -> None:
    for form in plan.formats:
        path = folder / (f"{prefix}{rank}" if form == "pickle" else f"{prefix}{rank}.json")
        path.write_bytes(pickle.dumps(dump, 2) if form == "pickle" else as_json(dump).encode())
        os.utime(path, ns=(written_ns, written_ns))


def write(
    plan: Plan, folder: Path, *, prefix: str = "trace_rank_", later_ns: int = 0, running: bool = False
) -> Written:
    """Play a plan and write its dumps; `running` takes them from a job in the middle of its work."""
    folder.mkdir(parents=True, exist_ok=True)
    job = build(plan)
    played = Play(job).run()
    rng = random.Random(plan.seed + 2)
    last = max(max(entry.issued, entry.done or 0) for entries in played for entry in entries)
    first = min(entry.issued for entries in played for entry in entries if entries)
    skews = [rng.randint(-plan.skew_ns, plan.skew_ns) + later_ns for _ in range(plan.world // HOST + 1)]
    innocents = [rank for rank in range(plan.world) if rank not in job.culprits]
    lost = set(job.culprits if plan.lose_culprit else ()) | set(rng.sample(innocents, min(plan.lose, len(innocents))))
    for rank, entries in enumerate(played):
        if rank in lost:
            continue
        now = first + (last - first) * 6 // 10 + rng.randrange(50_000_000) if running else last + TIMEOUT_NS
        recorder = Recorder(plan, rank, skews[rank // HOST], now)
        for entry in entries:
            if entry.issued <= now:
                recorder.add(entry)
        store(folder, prefix, rank, recorder.dump(), plan, now + skews[rank // HOST])
        if plan.second_recorder:
            store(folder, f"cpu_{prefix}", rank, second(plan, rank, first + skews[rank // HOST]), plan, now)
    return Written(folder, job, tuple(sorted(lost)))


def read(folder: Path) -> list[Dump]:
    """The dumps of a folder, through the real reader."""
    dumps = []
    for path in sorted(folder.iterdir()):
        about = path.stat()
        dumps += flight_recorder.read(Item(path, path.name, about.st_size, about.st_mtime_ns)).records
    return dumps


def second(plan: Plan, rank: int, start: int) -> dict[str, Any]:
    """The CPU recorder of a job that also has a Gloo group: a few metrics, all finished."""
    cpu = Plan(tp=1, dp=plan.world, backend="gloo", steps=3, buckets=0)
    entries = Play(build(cpu)).run()[rank]
    recorder = Recorder(cpu, rank, 0, entries[-1].issued + TIMEOUT_NS)
    shift = start - entries[0].issued
    for entry in entries:
        entry.issued += shift
        recorder.add(entry)
    dump = recorder.dump()
    for row in dump["entries"]:
        row["process_group"], row["retired"] = ("77", "metrics"), True
    return dump
