"""The profiles of a job together: everything that reports and rules ask about its steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from whichrank.model.step_report import Advice, Bucket, BucketSize, CollectiveShare, RankDrawing, RankShares, Straggler
from whichrank.records.profiles.steps import EXPOSED, IDLE_REASONS, RankSteps
from whichrank.records.profiles.trace import Bytes, Longs
from whichrank.timeline.steps import collectives
from whichrank.timeline.steps.advice import advise
from whichrank.timeline.steps.buckets import buckets_of
from whichrank.timeline.steps.intervals import Cover, median, union
from whichrank.timeline.steps.matching import Matched, match
from whichrank.timeline.steps.rebucketing import Backward, backward_of, bucket_sizes
from whichrank.timeline.steps.replay import Play, prepare, run, span
from whichrank.timeline.steps.scene import Scene
from whichrank.timeline.steps.stragglers import Late, find_late

STATES = (
    "compute",
    "compute and communication",
    "exposed communication",
    "memory copies",
    *(f"idle: {reason.replace('_', ' ')}" for reason in IDLE_REASONS),
    "waiting for another rank",
)
"""What the states of a drawing mean."""
WAITS = len(STATES) - 1
MOST_LINKS = 400_000
"""Beyond this a replay takes longer than it is worth."""


class Steps(Struct, dict=True):
    """One job's profiles; parts are worked out when they are first asked for."""

    ranks: list[RankSteps]

    @cached_property
    def matched(self) -> Matched:
        return match(self.ranks)

    @cached_property
    def count(self) -> int:
        """Steps that the typical profile holds."""
        return max(1, int(median([len(one.ids) for one in self.ranks])))

    @cached_property
    def step_ns(self) -> float:
        """The typical step."""
        lengths = [float(median(one.end - one.start)) for one in self.ranks if len(one.ids)]
        return float(median(lengths)) if lengths else 0.0

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
    def buckets(self) -> list[Bucket]:
        """DDP's buckets by the first rank; all ranks have the same."""
        return buckets_of(self.ranks[0]) if self.ranks else []

    @cached_property
    def backward(self) -> Backward | None:
        """DDP's backward pass gradient by gradient, where the profiles tell."""
        return backward_of(self.matched) if self.ranks else None

    @cached_property
    def bucket_sizes(self) -> list[BucketSize]:
        """What a step would take with other bucket sizes."""
        return bucket_sizes(self.backward, self.step_ns) if self.backward is not None else []

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
        if any(one.collectives_only for one in self.ranks):
            return []  # what ranks do between collectives decides what a change returns
        scene = Scene(
            self.matched, self.play, self.replayed, self.replay_error, self.count, self.step_ns, self.late,
            self.collectives, self.backward,
        )  # fmt: skip
        return advise(scene)

    @cached_property
    def shares(self) -> list[RankShares]:
        waits: list[int | None] = [cover.total for cover in self.waiting] or [None] * len(self.ranks)
        waits = [total if one.ends_known else None for total, one in zip(waits, self.ranks, strict=True)]
        return [_shares(one, waits[i], float(self.matched.offset[i])) for i, one in enumerate(self.ranks)]

    @cached_property
    def waiting(self) -> list[Cover]:
        """By rank, on its own clock: in an exposed collective whose last member had not come yet."""
        matched = self.matched
        if not (np.diff(matched.first) > 1).any():
            return []
        last = np.maximum.reduceat(matched.start, matched.first[:-1])
        until = np.minimum(last[matched.op], matched.end)
        found = []
        for index, one in enumerate(self.ranks):
            rows = matched.rank == index
            shift = int(matched.offset[index]) - one.base_ns
            alone = _in_state(one, EXPOSED)
            found.append(union(matched.start[rows] + shift, until[rows] + shift) & alone)
        return found

    def drawings(self) -> tuple[RankDrawing, ...]:
        """The rows of the map, on the common clock."""
        if not self.ranks:
            return ()
        origin = min(self.matched.time(i, int(one.map.at[0])) for i, one in enumerate(self.ranks))
        found = []
        for index, one in enumerate(self.ranks):
            shift = one.base_ns - int(self.matched.offset[index]) - origin
            when, state = _with_waits(one, self.waiting[index] if self.waiting else Cover())
            at = ((when + shift) / 1e3).round(1)
            label = f"rank {one.rank}" if one.rank is not None else one.source.rsplit("/", 1)[-1]
            found.append(
                RankDrawing(
                    label,
                    one.rank,
                    one.host_name or None,
                    tuple(at.tolist()),
                    tuple(state.tolist()),
                    tuple(((one.start + shift) / 1e3).round(1).tolist()) if one.marked else (),
                )
            )
        return tuple(found)


class Profiled(Struct, frozen=True):
    """A case that consists of profiles alone; rules on profiles look at nothing else."""

    steps: Steps | None


def _in_state(one: RankSteps, state: int) -> Cover:
    """When the rank was in this state, as far as its map tells."""
    rows = one.map.state[:-1] == state
    return Cover(one.map.at[:-1][rows], one.map.at[1:][rows])


def _with_waits(one: RankSteps, waits: Cover) -> tuple[Longs, Bytes]:
    """The map with waits for others told apart from transfers."""
    at = np.concatenate((one.map.at, waits.start, waits.end))
    before = np.maximum(np.searchsorted(one.map.at, waits.end, side="right") - 1, 0)
    state = np.concatenate((one.map.state, np.full(len(waits.start), WAITS, np.int8), one.map.state[before]))
    order = np.lexsort((state == WAITS, at))
    at, state = at[order], state[order]
    last = np.concatenate((at[1:] > at[:-1], [True])) if len(at) else np.zeros(0, np.bool_)
    at, state = at[last], state[last]
    changes = np.concatenate(([True], state[1:-1] != state[:-2], [True])) if len(at) > 1 else np.ones(len(at), np.bool_)
    return at[changes], state[changes]


def _shares(one: RankSteps, waiting: int | None, offset: float) -> RankShares:
    whole = float(one.span)
    communication = float(one.communication.sum())

    def share(part: float) -> float | None:
        return 100 * part / whole if whole > 0 else None

    def seen(part: float) -> float | None:
        """What can't be told from collectives alone, nor where all of the device's part was cut off."""
        lost = one.ends_early and not one.on_device and bool(one.accelerator)
        return None if one.collectives_only or lost else share(part)

    # What is missing from a file that was cut would count as idle.
    idle_known = not one.collectives_only and not one.ends_early

    compute, idle, overlap = one.hta
    return RankShares(
        rank=one.rank,
        file=one.source,
        host=one.host_name or None,
        steps=len(one.ids) if one.marked else 0,
        span_us=whole / 1e3,
        step_us=float(median(one.end - one.start)) / 1e3 if len(one.ids) else 0.0,
        compute_pct=seen(float(one.compute.sum())),
        communication_pct=share(communication) if one.ends_known else None,
        exposed_pct=seen(float(one.exposed.sum())),
        memory_pct=seen(float(one.memory.sum())),
        idle_pct=share(float(one.idle.sum())) if idle_known else None,
        overlap_pct=100 * (communication - float(one.exposed.sum())) / communication
        if communication and not one.collectives_only
        else None,
        idle_why={name: share(float(one.idle[:, i].sum())) or 0.0 for i, name in enumerate(IDLE_REASONS)}
        if idle_known
        else {},
        hta={"compute_pct": compute, "idle_pct": idle, "overlap_pct": overlap},
        waiting_pct=share(float(waiting)) if waiting is not None else None,
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
