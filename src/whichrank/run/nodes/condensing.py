"""Many ranks as few rows: ranks that look alike to the alarm are told as one, so that a root hears 100,000 of them.

The alarm asks whether any rank does something, whether all do, and for how long at least. A row that stands for ranks
of one kind, with the shortest times of any of them, gives the same answers; its mark changes when one of them moves.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Sequence

import msgspec

from whichrank.run.nodes.snapshot import Distant, Ranges, Row, rows_of
from whichrank.run.watch.job_processes import Member, rank_state
from whichrank.run.watch.silence import SOON_LOOP_S

SOON_S = 60.0
"""Nearer than this to a new line, a rank is told apart: the alarm bears it for longer."""


def condensed(members: Sequence[Member]) -> list[Row]:
    """One row for each kind of rank."""
    now_ns = time.time_ns()
    kinds: dict[tuple[object, ...], list[Member]] = {}
    for member in members:
        kinds.setdefault(_kind(member, now_ns), []).append(member)
    return [_row(alike) for alike in kinds.values()]


def _kind(member: Member, now_ns: int) -> tuple[object, ...]:
    """All that the alarm tells ranks apart by, and how they ended."""
    look, words = rank_state(member, now_ns), member.words
    return (
        words.attempt, words.world, look.phase, look.waiting, look.alive, look.busy, look.stopped, look.beating,
        look.resting, look.halted, look.stuck, look.traffic, look.work, look.completed > 0, look.stale_s < SOON_S / 2,
        look.traced, look.asleep, look.dormant, look.leads, look.stale_s < SOON_LOOP_S / 2, member.status,
    )  # fmt: skip


def _row(members: list[Member]) -> Row:
    members.sort(key=lambda member: member.rank)
    rows = rows_of(members)
    progress = [(row.rank, row.enqueued, row.completed, row.mark) for row in rows]
    return msgspec.structs.replace(
        rows[0],
        enqueued=min(row.enqueued for row in rows),
        completed=min(row.completed for row in rows),
        pending=max(row.pending for row in rows),
        beat=max(row.beat for row in rows),
        changed=_youngest(row.changed for row in rows),
        still=_youngest(row.still for row in rows),
        fresh=_youngest(row.fresh for row in rows),
        stuck=max(row.stuck for row in rows),
        effort=min((row.effort for row in rows if row.effort is not None), default=None),
        traffic=min((row.traffic for row in rows if row.traffic is not None), default=None),
        alike=ranges(rank for member in members for rank in ranks_of(member)),
        mark=zlib.crc32(repr(progress).encode()) + 1,
    )


def _youngest(ages: Iterable[int]) -> int:
    return min((age for age in ages if age >= 0), default=-1)


def ranks_of(member: Member) -> Iterable[int]:
    """All ranks that it stands for."""
    alike = member.alike if isinstance(member, Distant) else []
    return spread(alike) if alike else (member.rank,)


def count_of(member: Member) -> int:
    alike = member.alike if isinstance(member, Distant) else []
    return sum(last - first + 1 for first, last in alike) if alike else 1


def spread(given: Ranges) -> Iterable[int]:
    return (rank for first, last in given for rank in range(first, last + 1))


def ranges(ranks: Iterable[int]) -> Ranges:
    """Runs of ranks that follow each other."""
    found: Ranges = []
    for rank in sorted(set(ranks)):
        if found and found[-1][1] == rank - 1:
            found[-1] = (found[-1][0], rank)
        else:
            found.append((rank, rank))
    return found
