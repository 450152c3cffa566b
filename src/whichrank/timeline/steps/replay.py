"""The steps of all ranks replayed: what would have happened had something been different.

Each rank goes through its chain: own time, arrivals at collectives, waits for them. A collective ends when its last
member has arrived, the one before it on the same stream is over, and its transfer is done. With the times as recorded
the replay must come out where the job did; then single times are changed and it runs again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from whichrank.records.profiles.steps import ARRIVE, CHECKPOINT, COLLECTOR, HOST, WAIT, WORKING, RankSteps
from whichrank.records.profiles.trace import Floats
from whichrank.timeline.steps.collectives import payload
from whichrank.timeline.steps.intervals import medians
from whichrank.timeline.steps.matching import Matched


@dataclass
class Chain:
    """One rank's part: links in order, times in nanoseconds."""

    begin: float
    kind: list[int]
    op: list[int]
    own: list[float]
    """Own time before each link, and after the last one."""


@dataclass
class Play:
    """What is replayed."""

    chains: list[Chain]
    transfer: dict[int, float]
    before: dict[int, set[int]]
    """Operations that must be over before one can begin: those before it on the same streams."""
    members: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.members:
            for chain in self.chains:
                for kind, op in zip(chain.kind, chain.op, strict=True):
                    if kind == ARRIVE:
                        self.members[op] = self.members.get(op, 0) + 1

    @cached_property
    def after(self) -> dict[int, list[int]]:
        """By operation: those that can't begin before it is over."""
        found: dict[int, list[int]] = {}
        for op, earlier in self.before.items():
            for other in earlier:
                if op in self.members:
                    found.setdefault(other, []).append(op)
        return found


def run(play: Play) -> list[float] | None:
    """When each rank is through; None where the chains block each other (what was matched never met)."""
    alone = _alone(play) if len(play.chains) == 1 else None
    return [alone] if alone is not None else _Run(play).go()


def _alone(play: Play) -> float | None:
    """The same for a single rank, which waits for nobody but its own streams; None where their order is not its own."""
    (chain,) = play.chains
    transfer, before = play.transfer, play.before
    ended: dict[int, float] = {}
    clock = chain.begin
    for kind, op, own in zip(chain.kind, chain.op, chain.own, strict=False):
        clock += own
        if kind == ARRIVE:
            begun = clock
            for earlier in before.get(op, ()):
                if earlier not in ended:
                    return None
                begun = max(begun, ended[earlier])
            ended[op] = begun + transfer.get(op, 0.0)
        elif op not in ended:
            return None
        elif ended[op] > clock:
            clock = ended[op]
    return clock + chain.own[-1]


class _Run:
    """Clocks of the ranks, and what each operation still lacks."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.place = [0] * len(play.chains)
        self.clock = [chain.begin for chain in play.chains]
        self.missing = dict(play.members)
        self.latest: dict[int, float] = dict.fromkeys(play.members, float("-inf"))
        self.ended: dict[int, float] = {}
        self.waiting: dict[int, list[int]] = {}
        self.after = play.after
        for op, earlier in play.before.items():
            if op in self.missing:
                self.missing[op] += len(earlier)
        self.ready: list[int] = list(range(len(play.chains)))

    def go(self) -> list[float] | None:
        while self.ready:
            self._advance(self.ready.pop())
        if any(place <= len(chain.kind) for place, chain in zip(self.place, self.play.chains, strict=True)):
            return None
        return self.clock

    def _advance(self, rank: int) -> None:
        """Go on until the rank has to wait. This is the innermost loop of all advice: locals, no calls."""
        chain = self.play.chains[rank]
        kinds, ops, own = chain.kind, chain.op, chain.own
        missing, latest, ended = self.missing, self.latest, self.ended
        clock = self.clock[rank]
        for place in range(self.place[rank], len(kinds)):
            op = ops[place]
            if kinds[place] == ARRIVE:
                clock += own[place]
                latest[op] = max(latest[op], clock)
                missing[op] -= 1
                if not missing[op]:
                    self._complete(op)
            elif op in ended:
                clock = max(clock + own[place], ended[op])
            else:
                self.clock[rank], self.place[rank] = clock, place
                self.waiting.setdefault(op, []).append(rank)
                return
        self.clock[rank], self.place[rank] = clock + own[-1], len(kinds) + 1

    def _complete(self, op: int) -> None:
        """Everybody is there: it ends, and so may what waited for its stream."""
        todo = [op]
        while todo:
            op = todo.pop()
            self.ended[op] = end = self.latest[op] + self.play.transfer.get(op, 0.0)
            if op in self.waiting:
                self.ready += self.waiting.pop(op)
            for other in self.after.get(op, ()):
                self.latest[other] = max(self.latest[other], end)
                self.missing[other] -= 1
                if not self.missing[other]:
                    todo.append(other)


def prepare(matched: Matched) -> Play | None:
    """The recorded job as a play; None where there is nothing to replay."""
    ranks = matched.ranks
    if not ranks or not len(matched.op):
        return None
    numbers = _numbers(matched)
    chains = _chains(matched, numbers)
    ends = _ends(matched)
    before = _before(matched, numbers, chains, ends)
    return Play(chains, _transfers(matched, before, ends), before)


def without_idle(play: Play, matched: Matched, reason: int) -> Play:
    """The same without the time that ranks spent on one of the reasons for idleness."""
    return _respent(play, matched, [-1.0 if what == reason else 0.0 for what in range(WORKING + 1)])


def twice_the_batch(play: Play, matched: Matched) -> Play:
    """Twice the samples in each step: own time doubles but for launches, checkpoints and the garbage collector."""
    once = (HOST, CHECKPOINT, COLLECTOR)
    return _respent(play, matched, [0.0 if what in once else 1.0 for what in range(WORKING + 1)])


def _respent(play: Play, matched: Matched, factors: Sequence[float]) -> Play:
    """Own times changed by a share of what they were spent on."""
    chains = _chains(matched, _numbers(matched), np.array(factors))
    return Play(chains, play.transfer, play.before, play.members)


def _chains(matched: Matched, numbers: Sequence[Mapping[int, int]], more: Floats | None = None) -> list[Chain]:
    begins = [matched.time(index, int(one.start[0])) for index, one in enumerate(matched.ranks)]
    origin = min(begins)
    return [
        _chain(one, mine, begin - origin, more) for one, mine, begin in zip(matched.ranks, numbers, begins, strict=True)
    ]


def _chain(one: RankSteps, number: Mapping[int, int], begin: int, more: Floats | None) -> Chain:
    """One rank's links with the operations' numbers; waits for what it never arrived at are its own time."""
    links = one.links
    own, after = links.own, float(one.tail.sum())
    if more is not None:
        own, after = np.maximum(own + links.spent @ more, 0), max(0.0, after + float(one.tail @ more))
    kinds, ops, times, arrived = [], [], [], set()
    carried = 0.0
    for kind, call, time in zip(links.kind.tolist(), links.call.tolist(), own.tolist(), strict=True):
        op = number[call]
        if kind == WAIT and op not in arrived:  # begun before the first step
            carried += time
            continue
        if kind == ARRIVE:
            arrived.add(op)
        kinds.append(kind)
        ops.append(op)
        times.append(time + carried)
        carried = 0.0
    return Chain(float(begin), kinds, ops, [*times, after + carried])


def _numbers(matched: Matched) -> list[dict[int, int]]:
    """By rank: which operation each of its calls is."""
    found: list[dict[int, int]] = [{} for _ in matched.ranks]
    for op, rank, call in zip(matched.op.tolist(), matched.rank.tolist(), matched.call.tolist(), strict=True):
        found[rank][call] = op
    return found


def _before(
    matched: Matched, numbers: Sequence[Mapping[int, int]], chains: Sequence[Chain], ends: Any
) -> dict[int, set[int]]:
    """What ran just before each operation on the same stream of some rank.

    Only what also ended before it counts: ranks may disagree about the order of streams, and no cycle may arise.
    """
    played = [set(chain.op) for chain in chains]
    found: dict[int, set[int]] = {}
    for index, one in enumerate(matched.ranks):
        latest: dict[int, int] = {}
        for call, lane in enumerate(one.calls.lane.tolist()):
            op = numbers[index][call]
            if op not in played[index]:
                continue
            earlier = latest.get(lane, op)
            if (ends[earlier], earlier) < (ends[op], op):
                found.setdefault(op, set()).add(earlier)
            latest[lane] = op
    return found


def _transfers(matched: Matched, before: Mapping[int, set[int]], ends: Any) -> dict[int, float]:
    """How long each operation took once everybody was there and its stream was free."""
    played = np.flatnonzero(np.diff(matched.first))
    last = np.maximum.reduceat(matched.start, matched.first[played]).tolist() if len(played) else []
    found = {}
    for op, arrived in zip(played.tolist(), last, strict=True):
        begun = arrived
        for earlier in before.get(op, ()):
            begun = max(begun, ends[earlier])
        found[op] = max(0.0, ends[op] - begun)
    return found


def alone(play: Play, matched: Matched) -> dict[int, float]:
    """How long each transfer would have taken by itself: those that ran beside each other shared the time.

    Gloo moves two at once; NCCL, on the one stream of a group, one after the other.
    """
    ops = np.array(sorted(play.transfer), np.int64)
    if not len(ops):
        return {}
    over = np.asarray(_ends(matched))[ops]
    begun = over - np.array([play.transfer[op] for op in ops.tolist()])
    edges = np.concatenate((begun, over))
    order = np.argsort(edges, kind="stable")
    active = np.cumsum(np.where(order < len(ops), 1, -1))
    shares = np.diff(edges[order]) / np.maximum(active[:-1], 1)
    passed = np.empty(len(edges))
    passed[order] = np.concatenate(([0.0], np.cumsum(shares)))
    return dict(zip(ops.tolist(), (passed[len(ops) :] - passed[: len(ops)]).tolist(), strict=True))


def _ends(matched: Matched) -> Any:
    """When each operation ended, on the aligned clock."""
    return medians(matched.end, matched.first).tolist()


def without_waits(play: Play) -> Play:
    """Everything that waits goes on at once: the most that overlapping can give."""
    chains = []
    for chain in play.chains:
        keep = [kind == ARRIVE for kind in chain.kind]
        own, carried = [], 0.0
        for time, kept in zip(chain.own, [*keep, True], strict=True):
            carried += time
            if kept:
                own.append(carried)
                carried = 0.0
        chains.append(
            Chain(chain.begin, [ARRIVE] * sum(keep), [o for o, k in zip(chain.op, keep, strict=True) if k], own)
        )
    return Play(chains, play.transfer, play.before, play.members)


def prefetched(play: Play, matched: Matched) -> Play:
    """Every all-gather of a step is asked for together with the one before it: parameters come one unit early."""
    before = dict(play.before)
    return Play([_early(chain, matched, before) for chain in play.chains], play.transfer, before, play.members)


def _early(chain: Chain, matched: Matched, before: dict[int, set[int]]) -> Chain:
    """The chain with its all-gathers moved ahead; `before` learns that they no longer queue behind other operations."""
    last: dict[tuple[object, ...], tuple[int, int]] = {}
    order, own, carried = [], [], 0.0
    for place, (kind, op, time) in enumerate(zip(chain.kind, chain.op, chain.own, strict=False)):
        what, target = matched.what[op], (place, 0)
        carried += time
        if kind == ARRIVE and what.op == "all_gather":
            key = int(matched.step[op]), what.group, what.ranks
            if key in last:
                target, earlier = (last[key][0], 1), last[key][1]
                before[op] = {earlier}
            last[key] = place, op
        order.append(target)
        own.append(0.0 if target[1] else carried)
        carried = carried if target[1] else 0.0
    places = sorted(range(len(order)), key=order.__getitem__)
    kinds, ops = [chain.kind[i] for i in places], [chain.op[i] for i in places]
    return Chain(chain.begin, kinds, ops, [*(own[i] for i in places), chain.own[-1] + carried])


def with_own(play: Play, rank: int, own: Sequence[float], begin: float) -> Play:
    """One rank with other times of its own."""
    chains = list(play.chains)
    chains[rank] = Chain(begin, chains[rank].kind, chains[rank].op, list(own))
    return Play(chains, play.transfer, play.before, play.members)


def with_transfers(play: Play, transfer: dict[int, float]) -> Play:
    """Other transfer times."""
    return Play(play.chains, {**play.transfer, **transfer}, play.before, play.members)


def span(times: Sequence[float] | None) -> float | None:
    """From the common beginning to the last rank's end."""
    return max(times) if times else None


def own_clock(chain: Chain) -> Any:
    """The rank's own time at each link and at its end."""
    return np.cumsum(np.asarray(chain.own, np.float64))


def merged_buckets(
    play: Play, matched: Matched, together: int, cost: tuple[float, float], most: float = float("inf")
) -> Play | None:
    """All-reduces that follow one another, `together` at a time or until they hold `most` bytes, as DDP fills buckets.

    `cost` is (per call, per byte) in nanoseconds.

    A merged one is ready when its last part is, as DDP's buckets are. None where there is nothing to merge.
    """
    into = _merging(play, matched, together, most)
    if len(set(into.values())) == len(into):
        return None
    size: dict[int, float] = {}
    for op, target in into.items():
        size[target] = size.get(target, 0.0) + (payload(matched.what[op]) or 0)
    merged = {target for op, target in into.items() if op != target}
    transfer = {into.get(op, op): time for op, time in play.transfer.items() if into.get(op, op) == op}
    transfer.update({target: cost[0] + cost[1] * size[target] for target in merged})
    before: dict[int, set[int]] = {}
    for op, earlier in play.before.items():
        target = into.get(op, op)
        before.setdefault(target, set()).update({into.get(e, e) for e in earlier} - {target})
    ends = {op: place for place, op in enumerate(sorted(play.transfer))}
    before = {op: {e for e in earlier if ends.get(e, -1) < ends.get(op, 0)} for op, earlier in before.items()}
    return Play([_merged_chain(chain, into) for chain in play.chains], transfer, before)


def _merging(play: Play, matched: Matched, together: int, most: float) -> dict[int, int]:
    """Which operation each all-reduce becomes a part of: the last of its bunch. Bunches end with the step."""
    into: dict[int, int] = {}
    chain = max(play.chains, key=lambda one: len(one.op))
    bunch: list[int] = []
    filled = 0.0
    place: tuple[object, ...] = ()
    for kind, op in zip(chain.kind, chain.op, strict=True):
        what = matched.what[op]
        if kind != ARRIVE or what.op != "all_reduce":
            continue
        here = int(matched.step[op]), what.group, what.ranks, what.dtype
        if here != place or len(bunch) == together or filled >= most:
            into.update(dict.fromkeys(bunch, bunch[-1]) if bunch else {})
            bunch, place, filled = [], here, 0.0
        bunch.append(op)
        filled += payload(what) or 0
    into.update(dict.fromkeys(bunch, bunch[-1]) if bunch else {})
    return into


def _merged_chain(chain: Chain, into: Mapping[int, int]) -> Chain:
    """The chain with arrivals at parts left out; a wait for a part is one for the whole, once it has begun."""
    kinds, ops, own, carried = [], [], [], 0.0
    arrived: set[int] = set()
    for kind, op, time in zip(chain.kind, chain.op, chain.own, strict=False):
        target = into.get(op, op)
        carried += time
        if (kind == ARRIVE and target != op) or (kind == WAIT and target not in arrived):
            continue
        kinds.append(kind)
        ops.append(target)
        own.append(carried)
        carried = 0.0
        if kind == ARRIVE:
            arrived.add(target)
    return Chain(chain.begin, kinds, ops, [*own, chain.own[-1] + carried])
