"""The nodes of a job as the leader knows them: who is there, who has gone silent, what each has told."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from whichrank.model.last_words import Words
from whichrank.run.nodes.protocol import Beat
from whichrank.run.nodes.snapshot import Below, Distant, Snapshot, lost, update

Standing = Literal["here", "silent", "left", "ended"]
"""Silent: nothing is heard, and nothing says why. Left: its watcher has ended, its host is there."""

SILENT_S = 5.0
PAUSES = 4.0
"""Times the longest pause between two beats of this node, where that is more."""
LONGEST_S = 30.0
ON_THE_WAY_S = 5.0
BACK_S = 3.0
"""A watcher whose connection broke comes back within this time."""


@dataclass(slots=True)
class Upload:
    """The evidence of a node, on its way or here."""

    token: str
    final: bool = False
    path: Path | None = None
    """An archive, or a folder."""
    size: int = 0
    note: str = ""
    """What it lacks."""
    done: bool = False
    why: str = ""
    """Why it could not be had; empty where it could."""


@dataclass(slots=True)
class Node:
    """One other node."""

    name: str
    instance: str = ""
    address: str = ""
    heard: float = field(default_factory=time.monotonic)
    heard_ns: int = field(default_factory=time.time_ns)
    open: bool = True
    closed: bool = False
    """Whether it closed the connection itself: then its host is alive."""
    snapshot: Snapshot = field(default_factory=Snapshot)
    taken_ns: int = 0
    ranks: list[int] = field(default_factory=list)
    failed: bool = False
    """Whether its job, or a rank of it, has ended badly."""
    clock: tuple[float, float] | None = None
    """Seconds that it is ahead of this one, and what that may be wrong by."""
    upload: Upload | None = None
    below: list[Below] = field(default_factory=list)
    """The nodes that report to it."""
    port: int = 0
    """Where it takes others; 0 where it does not."""
    asked_to_lead: float = float("-inf")
    referred: deque[float] = field(default_factory=lambda: deque(maxlen=4096))
    """When others were sent to it."""
    members: dict[int, Distant] = field(default_factory=dict)
    least_s: float = SILENT_S
    _pauses: deque[float] = field(default_factory=lambda: deque(maxlen=64))
    _merged: bool = True

    def beat(self, beat: Beat) -> None:
        """It was heard."""
        now = time.monotonic()
        self._pauses.append(now - self.heard)
        self.heard, self.heard_ns = now, time.time_ns()
        if beat.ahead_s is not None and beat.error_s is not None:
            self.clock = (beat.ahead_s, beat.error_s)
        if beat.snapshot is not None:
            self.snapshot, self.taken_ns, self._merged = beat.snapshot, self.heard_ns, False
            rows = beat.snapshot.rows
            self.below = beat.snapshot.below if beat.snapshot.below is not None else self.below
            self.ranks = sorted([row.rank for row in rows if not row.alike])
            self.failed = bool(beat.snapshot.code) or any(not row.alive and row.status for row in rows)

    @property
    def load(self) -> int:
        """Nodes that report to it, or are on their way there."""
        now = time.monotonic()
        while self.referred and now - self.referred[0] > ON_THE_WAY_S:
            self.referred.popleft()
        return len(self.referred) + sum(each.state == "here" for each in self.below)

    @property
    def patience_s(self) -> float:
        """For how long nothing need be heard of it."""
        return min(max(self.least_s, PAUSES * max(self._pauses, default=0.0)), max(LONGEST_S, self.least_s))

    def standing(self, now: float) -> Standing:
        if self.snapshot.ended:
            return "ended"
        if not self.open and self.closed:
            return "left" if now - self.heard > BACK_S else "here"
        return "silent" if now - self.heard > self.patience_s else "here"

    def people(self, now: float) -> list[Distant]:
        """Its ranks as they are by now; none where nobody watches them any more."""
        standing = self.standing(now)
        if standing == "left":
            return []
        if standing == "silent":
            return [lost(member) for member in self.last_seen() if not member.alike]
        if not self._merged:
            self._merged = True
            self.members = self._up_to_date(self.members)
        return list(self.members.values())

    def last_seen(self) -> list[Distant]:
        """Its ranks as its watcher last told them."""
        return list(self._up_to_date({}).values())

    def _up_to_date(self, known: dict[int, Distant]) -> dict[int, Distant]:
        found = {}
        for row in self.snapshot.rows:
            member = known.get(row.rank) or Distant(Words(), f"{self.name}.{row.rank}", node=self.name)
            update(member, row, self.taken_ns)
            found[row.rank] = member
        return found


@dataclass(slots=True)
class Roster:
    """All other nodes; written by the thread that listens, read by the watcher."""

    nodes: dict[str, Node] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def admit(self, name: str, instance: str, address: str, own: str) -> Node:
        """A node that joins, or comes back; a second one of the same name gets another."""
        with self.lock:
            known = next((node for node in self.nodes.values() if instance and node.instance == instance), None)
            if known is None:
                wanted, number = name, 1
                while wanted == own or (wanted in self.nodes and not self._gone(wanted)):
                    number += 1
                    wanted = f"{name}-{number}"
                known = self.nodes[wanted] = Node(wanted, instance, address)
            known.open, known.closed, known.address = True, False, address
            known.heard, known.heard_ns = time.monotonic(), time.time_ns()
            return known

    def _gone(self, name: str) -> bool:
        return self.nodes[name].standing(time.monotonic()) != "here"

    def everybody(self) -> list[Node]:
        with self.lock:
            return [self.nodes[name] for name in sorted(self.nodes)]

    def standing(self, *wanted: Standing) -> Iterator[Node]:
        now = time.monotonic()
        return (node for node in self.everybody() if node.standing(now) in wanted)
