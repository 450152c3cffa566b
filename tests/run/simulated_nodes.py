"""Watchers of nodes whose ranks are made up; connections, frames, alarm, requests and uploads are the real ones."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whichrank.model.last_words import JOINED, Words
from whichrank.run.nodes.all_nodes import AllNodes
from whichrank.run.nodes.follower import Follower
from whichrank.run.nodes.joining import Link
from whichrank.run.nodes.leader import Leader
from whichrank.run.nodes.peers import Peers
from whichrank.run.watch.job_processes import JobProcesses, Member
from whichrank.run.watch.run_record import RunRecord
from whichrank.run.watch.samples import History
from whichrank.run.watch.watcher import Watcher

PLACE = "/srv/project/training/loop.py:118 train_one_epoch"


@dataclass
class Job:
    """What all ranks do: they step until the job hangs, then all of them wait."""

    world: int
    hung_at: float | None = None
    """By time.time(): the simulated nodes may be spread over processes."""
    evidence: Callable[[int, Path], None] = lambda rank, folder: None
    """Writes what a rank leaves into a folder."""

    def member(self, rank: int, local: int, began: float) -> Member:
        now = time.time()
        hung = self.hung_at is not None and now >= self.hung_at
        stopped_ns = int((self.hung_at if hung and self.hung_at is not None else now) * 1e9)
        step = int(((self.hung_at if hung and self.hung_at is not None else now) - began) * 10) + 10
        words = Words(
            beat=step, pid=1000 + local, start_ticks=12345, rank=rank, local_rank=local, world=self.world, phase=JOINED,
            started_ns=int(began * 1e9), beat_ns=int(now * 1e9), changed_ns=stopped_ns, enqueued=step,
            completed=step - 1, pending=1, still_ns=stopped_ns, fresh_ns=stopped_ns, stuck_ns=stopped_ns if hung else 0,
            operation="all_reduce", place=PLACE, looks=step, waits=step // 2,
        )  # fmt: skip
        member = Member(words, str(local), state="S")
        if hung:
            member.effort, member.traffic, member.turns = 0.0, 0.0, 1.0
        return member


@dataclass
class SimulatedWatcher(Watcher):
    """The watcher of a node with made-up ranks."""

    job_of: Job = field(kw_only=True)
    first: int = field(kw_only=True)
    per_node: int = field(kw_only=True)
    began: float = field(default_factory=time.time)

    @property
    def nodes(self) -> AllNodes:
        assert isinstance(self.scope, AllNodes)
        return self.scope

    @property
    def link(self) -> Link:
        return self.nodes.link

    def refresh(self) -> list[Member]:
        ranks = range(self.first, self.first + self.per_node)
        return [self.job_of.member(rank, rank - self.first, self.began) for rank in ranks]

    def measure(self, now_s: float, ranks: list[Member]) -> None:
        """Nothing of it can be measured here."""

    def take_here(self, patience_s: float, *, pauses: bool = False, gdb: bool = False) -> None:
        if pauses:
            self.gather_here(self.record.job_processes)

    def gather_here(self, job_processes: JobProcesses, **more: Any) -> None:
        folder = self.record.open_bundle().folder
        folder.mkdir(parents=True, exist_ok=True)
        for rank in range(self.first, self.first + self.per_node):
            self.job_of.evidence(rank, folder)


class NoHistory(History):
    """Thousands of nodes share this machine: none of them writes the history of its made-up processes."""

    def look(self, now_s: float, ranks: Sequence[Member]) -> None:
        pass


def lead(place: tuple[str, int], folder: Path, job: Job, token: str, fan_in: int, nodes: int, **more: Any) -> Any:
    """The root, on this host."""
    leader = Leader(socket.create_server(place, backlog=512), "root", token, lambda _: None, fan_in=fan_in)
    return _watcher(Link("root", nodes, leader), folder, job, 0, **more)


def follow(place: tuple[str, int], folder: Path, job: Job, token: str, fan_in: int, number: int, **more: Any) -> Any:
    """One other node."""
    follower = Follower(place, f"n{number}", token, lambda _: None, fan_in=fan_in)
    return _watcher(Link(f"n{number}", 0, follower), folder, job, number, **more)


def _watcher(
    link: Link, folder: Path, job: Job, number: int, per_node: int = 1, scope: type[AllNodes] = AllNodes, **more: Any
) -> SimulatedWatcher:
    folder.mkdir(parents=True, exist_ok=True)
    record = RunRecord(JobProcesses(folder), folder, lambda _: None)
    record.journal.past = NoHistory(folder)
    nodes = scope(Peers(link, lambda _: None))
    made = SimulatedWatcher(record, nodes, job_of=job, first=number * per_node, per_node=per_node, **more)
    link.start(folder / "uploads")
    return made
