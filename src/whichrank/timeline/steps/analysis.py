"""The profiles of a job together: everything that reports and rules ask about its steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from whichrank.model.step_report import Advice, CollectiveShare, RankDrawing, RankShares, Straggler
from whichrank.records.steps import IDLE_REASONS, RankSteps
from whichrank.timeline.steps import collectives
from whichrank.timeline.steps.advice import Scene, advise
from whichrank.timeline.steps.intervals import union
from whichrank.timeline.steps.matching import Matched, match
from whichrank.timeline.steps.replay import Play, prepare, run, span
from whichrank.timeline.steps.stragglers import Late, find_late

STATES = ("compute", "compute and communication", "exposed communication", "memory copies", *(f"idle: {reason.replace('_', ' ')}" for reason in IDLE_REASONS))
"""What the states of a drawing mean."""
MOST_LINKS = 400_000
"""Beyond this a replay takes longer than it is worth."""


@dataclass
class Steps:
    """One job's profiles; parts are worked out when they are first asked for."""

    ranks: list[RankSteps]

    @cached_property
    def matched(self) -> Matched:
        return match(self.ranks)

    @cached_property
    def count(self) -> int:
        """Steps that the typical profile holds."""
        return max(1, int(np.median([len(one.ids) for one in self.ranks])))

    @cached_property
    def step_ns(self) -> float:
        """The typical step."""
        lengths = [float(np.median(one.end - one.start)) for one in self.ranks if len(one.ids)]
        return float(np.median(lengths)) if lengths else 0.0

    @cached_property
    def play(self) -> Play | None:
        if sum(len(one.links) for one in self.ranks) > MOST_LINKS:
            return None
        return prepare(self.matched)

    @cached_property
    def replayed(self) -> float | None:
        """Nanoseconds that the replay of the recording takes, from the first step to the last rank's end."""
        return span(run(self.play)) if self.play is not None else None

    @cached_property
    def replay_error(self) -> float:
        """How far the replay is from the recording, as a share; 1 where there is none."""
        if self.replayed is None:
            return 1.0
        origin = min(self.matched.time(i, int(one.start[0])) for i, one in enumerate(self.ranks))
        real = max(self.matched.time(i, one.finish) for i, one in enumerate(self.ranks)) - origin
        return abs(self.replayed - real) / real if real > 0 else 1.0

    @cached_property
    def late(self) -> list[Late]:
        return find_late(self.matched, self.play, self.replayed)

    @cached_property
    def collectives(self) -> list[CollectiveShare]:
        transfer = self.play.transfer if self.play is not None else {}
        return collectives.shares(self.matched, transfer, self.count)

    @cached_property
    def stragglers(self) -> list[Straggler]:
        found = []
        for late in self.late:
            one = self.ranks[late.index]
            found.append(
                Straggler(
                    rank=one.rank if one.rank is not None else late.index,
                    late_us_per_step=late.late_ns / 1e3,
                    cost_us_per_step=late.cost_ns / 1e3 if late.cost_ns is not None else None,
                    doing=late.doing,
                    reason=late.reason,
                    steps=late.steps,
                    of_steps=late.of_steps,
                    host=one.host_name or None,
                )
            )
        return found

    @cached_property
    def advice(self) -> list[Advice]:
        scene = Scene(
            self.matched, self.play, self.replayed, self.replay_error, self.count, self.step_ns, self.late,
            self.collectives,
        )  # fmt: skip
        return advise(scene)

    @cached_property
    def shares(self) -> list[RankShares]:
        waiting = self._waiting()
        return [_shares(one, waiting[i], float(self.matched.offset[i])) for i, one in enumerate(self.ranks)]

    def _waiting(self) -> list[float | None]:
        """By rank: the share of its time in collectives before their last member had come."""
        matched = self.matched
        if not (np.diff(matched.first) > 1).any():
            return [None] * len(self.ranks)
        last = np.maximum.reduceat(matched.start, matched.first[:-1])
        until = np.minimum(last[matched.op], matched.end)
        found: list[float | None] = []
        for index, one in enumerate(self.ranks):
            rows = matched.rank == index
            found.append(100 * union(matched.start[rows], until[rows]).total / one.span if one.span else None)
        return found

    def drawings(self) -> tuple[RankDrawing, ...]:
        """The rows of the map, on the common clock."""
        if not self.ranks:
            return ()
        origin = min(self.matched.time(i, int(one.map.at[0])) for i, one in enumerate(self.ranks))
        found = []
        for index, one in enumerate(self.ranks):
            shift = one.base_ns - int(self.matched.offset[index]) - origin
            at = ((one.map.at + shift) / 1e3).round(1)
            label = f"rank {one.rank}" if one.rank is not None else one.source.rsplit("/", 1)[-1]
            found.append(
                RankDrawing(
                    label, one.rank, one.host_name or None, tuple(at.tolist()), tuple(one.map.state.tolist()),
                    tuple(((one.start + shift) / 1e3).round(1).tolist()) if one.marked else (),
                )  # fmt: skip
            )
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Profiled:
    """A case that consists of profiles alone; rules on profiles look at nothing else."""

    steps: Steps | None


def _shares(one: RankSteps, waiting: float | None, offset: float) -> RankShares:
    whole = float(one.span)
    communication = float(one.communication.sum())

    def share(part: float) -> float | None:
        return 100 * part / whole if whole > 0 else None

    compute, idle, overlap = one.hta
    return RankShares(
        rank=one.rank,
        file=one.source,
        host=one.host_name or None,
        steps=len(one.ids) if one.marked else 0,
        span_us=whole / 1e3,
        step_us=float(np.median(one.end - one.start)) / 1e3 if len(one.ids) else 0.0,
        compute_pct=share(float(one.compute.sum())),
        communication_pct=share(communication),
        exposed_pct=share(float(one.exposed.sum())),
        memory_pct=share(float(one.memory.sum())),
        idle_pct=share(float(one.idle.sum())),
        overlap_pct=100 * (communication - float(one.exposed.sum())) / communication if communication else None,
        idle_why={name: share(float(one.idle[:, i].sum())) or 0.0 for i, name in enumerate(IDLE_REASONS)},
        hta={"compute_pct": compute, "idle_pct": idle, "overlap_pct": overlap},
        waiting_pct=waiting,
        clock_offset_us=offset / 1e3,
        on_device=one.on_device,
    )


def together(ranks: Iterable[RankSteps]) -> Steps:
    """The profiles of one job, in order of rank, each rank once; unnumbered ones are numbered after the rest."""
    ordered = sorted(ranks, key=lambda one: (one.rank is None, one.rank or 0, one.source))
    return Steps(_distinct(ordered))


def _distinct(ranks: Sequence[RankSteps]) -> list[RankSteps]:
    """Several profiles of one rank are different cycles of its profiler: the one with the most steps is kept."""
    best: dict[object, RankSteps] = {}
    for one in ranks:
        key: object = one.rank if one.rank is not None else one.source
        if key not in best or (len(one.ids), one.events) > (len(best[key].ids), best[key].events):
            best[key] = one
    found = list(best.values())
    if len(found) == 1 and found[0].rank is None:
        return [replace(found[0], rank=0)] if found[0].world in (None, 1) else found
    return found
