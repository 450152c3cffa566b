"""Buckets of another size: all-reduces that follow one another become one, as DDP would fill its buckets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from whichrank.records.profiles.steps import ARRIVE, WAIT
from whichrank.timeline.steps.collectives import payload
from whichrank.timeline.steps.matching import Matched
from whichrank.timeline.steps.replay import Chain, Play
from whichrank.timeline.steps.transfer_cost import Part


def merged_buckets(
    play: Play,
    matched: Matched,
    together: int,
    takes: Callable[[Sequence[Part]], float],
    most: float = float("inf"),
) -> Play | None:
    """All-reduces that follow one another, `together` at a time or until they hold `most` bytes, as DDP fills buckets.

    `takes` says how long one of all these parts takes. A merged one is ready when its last part is, as DDP's buckets
    are. None where there is nothing to merge.
    """
    into = _merging(play, matched, together, most)
    if len(set(into.values())) == len(into):
        return None
    parts: dict[int, list[Part]] = {}
    for op, target in into.items():
        parts.setdefault(target, []).append(Part(op, float(payload(matched.what[op]) or 0)))
    transfer = {op: time for op, time in play.transfer.items() if into.get(op, op) == op}
    transfer.update({target: takes(several) for target, several in parts.items() if len(several) > 1})
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
