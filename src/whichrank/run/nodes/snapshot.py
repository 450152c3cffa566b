"""What the watcher of a node tells the leader of its ranks, once a second: compact, and checked when it is read.

Times are ages in milliseconds at the moment of the snapshot: the clocks of two hosts need not agree.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from whichrank.model import last_words as layout
from whichrank.model.last_words import Words
from whichrank.run.watch.job_processes import Member

MOST_ROWS = 4096
"""Ranks of one node."""
MOST_BELOW = 1 << 15

Count = Annotated[int, msgspec.Meta(ge=-1, le=1 << 62)]
Age = Annotated[int, msgspec.Meta(ge=-1, le=1 << 42)]
"""Milliseconds; -1 where it never happened."""
Word = Annotated[str, msgspec.Meta(max_length=400)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=1 << 20)]
Ranges = Annotated[list[tuple[Rank, Rank]], msgspec.Meta(max_length=1 << 16)]
"""First and last of each run of ranks."""
State = Literal["here", "silent", "left", "ended", "unknown"]


class Row(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One rank."""

    rank: Rank
    pid: Count
    start_ticks: Count
    local_rank: Count
    world: Count
    attempt: Count
    phase: Annotated[int, msgspec.Meta(ge=0, lt=len(layout.PHASES))]
    flags: Count
    enqueued: Count
    completed: Count
    pending: Count
    started: Age
    beat: Age
    changed: Age
    still: Age
    fresh: Age
    stuck: Age
    steps: Count
    alive: bool
    held: bool
    state: Annotated[str, msgspec.Meta(max_length=4)]
    status: Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)] | None
    ended: Age
    effort: Amount | None
    traffic: Amount | None
    turns: Amount | None
    operation: Word
    place: Word
    error: Word
    work: Word
    looks: Count = 0
    waits: Count = 0
    activity: Word = ""
    busy_at: Word = ""
    alike: Ranges = []
    """All ranks that it stands for; empty where it is one process alone."""
    mark: Count = 0
    rest: Word = ""


class Below(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A node that reports to another one, which passes on what it says."""

    instance: Annotated[str, msgspec.Meta(max_length=100)]
    name: Annotated[str, msgspec.Meta(max_length=120)]
    state: State
    ranks: Ranges
    heard_ns: Count | None = None
    """Where it is silent: when it was last heard."""
    code: int | None = None


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """All ranks of a node at one moment."""

    rows: Annotated[list[Row], msgspec.Meta(max_length=MOST_ROWS)] = []
    launch: Count = 0
    """Attempts of launches before this one."""
    ended: bool = False
    """The job has ended on this node."""
    code: int | None = None
    results: Word = ""
    """Where the node keeps its own."""
    below: Annotated[list[Below], msgspec.Meta(max_length=MOST_BELOW)] | None = None
    """The nodes whose word this one passes on; None where that has not changed."""


@dataclass(slots=True)
class Distant(Member):
    """A rank of another node, as its watcher told."""

    node: str = ""
    told_holds_gil: bool = False
    alike: list[tuple[int, int]] = field(default_factory=list)
    """All ranks that it stands for; empty for itself alone."""

    @property
    def holds_gil(self) -> bool:
        return self.alive and self.told_holds_gil


def rows_of(members: Sequence[Member]) -> list[Row]:
    """The ranks of this node."""
    now_ns = time.time_ns()
    return [_row(member, now_ns) for member in members[:MOST_ROWS]]


def _row(member: Member, now_ns: int) -> Row:
    words = member.words
    return Row(
        words.rank, words.pid, words.start_ticks, words.local_rank, words.world, words.attempt, words.phase,
        words.flags, words.enqueued, words.completed, words.pending, _age(now_ns, words.started_ns),
        _age(now_ns, words.beat_ns), _age(now_ns, words.changed_ns), _age(now_ns, words.still_ns),
        _age(now_ns, words.fresh_ns), _age(now_ns, words.stuck_ns), words.steps, member.alive, member.holds_gil,
        member.state, member.status, _age(now_ns, member.ended_ns or 0), member.effort, member.traffic, member.turns,
        words.operation, words.place, words.error, words.work, words.looks, words.waits, words.activity, words.busy_at,
        member.alike if isinstance(member, Distant) else [], member.mark, member.rest,
    )  # fmt: skip


def _age(now_ns: int, since_ns: int) -> int:
    return max(0, (now_ns - since_ns) // 1_000_000) if since_ns else -1


def update(member: Distant, row: Row, now_ns: int) -> None:
    """Bring a member up to date."""
    member.words = Words(
        0, row.pid, 0, row.start_ticks, row.rank, row.local_rank, row.world, row.attempt, row.phase, row.flags,
        _since(now_ns, row.started), _since(now_ns, row.beat), _since(now_ns, row.changed), row.enqueued,
        row.completed, row.pending, -1, 0, _since(now_ns, row.still), _since(now_ns, row.fresh),
        _since(now_ns, row.stuck), row.steps, row.looks, row.waits, 0, row.operation, row.place, row.error,
        row.work, row.activity, row.busy_at,
    )  # fmt: skip
    member.alive, member.state, member.status, member.told_holds_gil = row.alive, row.state, row.status, row.held
    member.ended_ns = _since(now_ns, row.ended) or None
    member.effort, member.traffic, member.turns, member.rest = row.effort, row.traffic, row.turns, row.rest
    member.alike, member.mark = row.alike, row.mark


def lost(member: Distant) -> Distant:
    """Nothing is heard of its node: it can't end a silence, so it counts among those that wait."""
    words = member.words
    member.words = words._replace(flags=words.flags | layout.IN_COLLECTIVE, work="")
    member.effort, member.traffic, member.told_holds_gil, member.state, member.rest = 0.0, 0.0, False, "", ""
    return member


def _since(now_ns: int, age_ms: int) -> int:
    return now_ns - age_ms * 1_000_000 if age_ms >= 0 else 0
