"""Plays the programs of a pretend job: hosts issue, GPUs work through queues, until nothing moves any more."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.jobs.pretend import Job, Op, members

START_NS = 1_790_000_000_000_000_000
COST_NS = 200_000
LAUNCH_NS = 20_000

Lane = tuple[object, ...]


@dataclass
class Entry:
    """One issued operation."""

    op: Op
    index: int
    """Place in the rank's program."""
    issued: int
    needs: list[Entry]
    """What the GPU has to finish before it begins this one."""
    begun: int | None = None
    done: int | None = None

    def ready(self) -> int | None:
        ends = [need.done for need in self.needs]
        return None if None in ends else max([self.issued, *(end for end in ends if end is not None)])


@dataclass
class Rank:
    """A host and its GPU."""

    number: int
    program: list[Op]
    now: int
    next: int = 0
    waits: Entry | None = None
    entries: list[Entry] = field(default_factory=list)
    joined: Entry | None = None
    loose: list[Entry] = field(default_factory=list)
    """Buckets that the GPU's later work does not wait for yet."""


def lane_of(rank: int, op: Op) -> Lane:
    """The queue an operation goes through: its group's communicator, or that of a pair."""
    return op.group if op.peer is None else ("pair", op.group, *sorted((rank, op.peer)))


class Play:
    """One run of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.rng = random.Random(job.plan.seed + 1)
        self.ranks = [Rank(n, program, START_NS) for n, program in enumerate(job.programs)]
        self.queues: dict[Lane, dict[int, list[Entry]]] = {}
        self.heads: dict[tuple[Lane, int], int] = {}
        self.dead: set[Lane] = set()

    def run(self) -> list[list[Entry]]:
        moved = True
        while moved:
            moved = sum(self._issue(rank) for rank in self.ranks) > 0
            moved = sum(self._advance(lane) for lane in list(self.queues)) > 0 or moved
        return [rank.entries for rank in self.ranks]

    def _issue(self, rank: Rank) -> bool:
        moved = False
        if rank.waits is not None and rank.waits.done is not None:
            rank.now, rank.waits, moved = max(rank.now, rank.waits.done), None, True
        while rank.waits is None and rank.next < len(rank.program) and self.job.stops.get(rank.number) != rank.next:
            op = rank.program[rank.next]
            rank.now += int(op.work_ns * self.rng.uniform(0.9, 1.1)) + LAUNCH_NS
            needs = [rank.joined] if rank.joined is not None else []
            if op.gathers:
                needs += rank.loose
                rank.loose = []
            entry = Entry(op, rank.next, rank.now, needs)
            rank.entries.append(entry)
            lane = lane_of(rank.number, op)
            self.queues.setdefault(lane, {}).setdefault(rank.number, []).append(entry)
            if self.job.dead_lane == (rank.number, rank.next):
                self.dead.add(lane)
            if op.joins:
                rank.joined = entry
            else:
                rank.loose.append(entry)
            rank.next += 1
            rank.waits = entry if op.host_waits else None
            moved = True
        return moved

    def _head(self, lane: Lane, rank: int) -> Entry | None:
        queue = self.queues[lane].get(rank, [])
        place = self.heads.get((lane, rank), 0)
        return queue[place] if place < len(queue) else None

    def _begin(self, rank: int, entry: Entry | None) -> bool:
        if entry is None or self.job.dead_gpu.get(rank, entry.index + 1) <= entry.index:
            return False
        ready = entry.ready()
        if ready is not None and entry.begun is None:
            entry.begun = ready
        return entry.begun is not None

    def _advance(self, lane: Lane) -> bool:
        ranks = members(self.job.plan, lane) if lane[0] != "pair" else list(lane[2:])  # type: ignore[arg-type]
        moved = False
        while True:
            heads = {rank: self._head(lane, rank) for rank in ranks}
            begun = [self._begin(rank, entry) for rank, entry in heads.items()]
            here = [entry for entry in heads.values() if entry is not None]
            if not all(begun) or lane in self.dead or (finishing := self._finishing(lane, heads)) is None:
                return moved
            end = max(entry.begun or 0 for entry in here) + COST_NS
            for rank in finishing:
                entry = heads[rank]
                assert entry is not None
                previous = self.heads.get((lane, rank), 0)
                entry.done = end + self.rng.randrange(1000)
                self.heads[lane, rank] = previous + 1
            if len(finishing) < len(ranks):
                self.dead.add(lane)
            moved = True

    def _finishing(self, lane: Lane, heads: dict[int, Entry | None]) -> list[int] | None:
        """The ranks whose operation ends now; None if it can't."""
        ops = {rank: entry.op for rank, entry in heads.items() if entry is not None}
        if lane[0] == "pair":
            return list(ops) if {op.name for op in ops.values()} == {"send", "recv"} else None
        if len({op.agreement for op in ops.values()}) == 1:
            return list(ops)
        if len({op.name for op in ops.values()}) > 1 or self.job.plan.pairing == "strict":
            return None
        smallest = min(op.numel for op in ops.values())
        return list(ops) if self.job.plan.pairing == "loose" else [r for r, op in ops.items() if op.numel == smallest]
