"""Changes to what is replayed, one at a time: each says what would be different, all else stays as it was recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whichrank.records.profiles.steps import ARRIVE, CHECKPOINT, COLLECTOR, HOST, WORKING
from whichrank.timeline.steps.matching import Matched
from whichrank.timeline.steps.replay import Chain, Play, chains_of, numbers_of


def without_idle(play: Play, matched: Matched, reason: int) -> Play:
    """The same without the time that ranks spent on one of the reasons for idleness."""
    return _respent(play, matched, [-1.0 if what == reason else 0.0 for what in range(WORKING + 1)])


def twice_the_batch(play: Play, matched: Matched) -> Play:
    """Twice the samples in each step: own time doubles but for launches, checkpoints and the garbage collector."""
    once = (HOST, CHECKPOINT, COLLECTOR)
    return _respent(play, matched, [0.0 if what in once else 1.0 for what in range(WORKING + 1)])


def _respent(play: Play, matched: Matched, factors: Sequence[float]) -> Play:
    """Own times changed by a share of what they were spent on."""
    chains = chains_of(matched, numbers_of(matched), np.array(factors))
    return Play(chains, play.transfer, play.before, play.members)


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
