"""DDP's buckets, as the all-reduces of one step show them: their order, their sizes, and when each began."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from whichrank.model.step_report import Bucket
from whichrank.records.profiles.steps import RankSteps
from whichrank.records.profiles.trace import Filled
from whichrank.timeline.steps.collectives import payload
from whichrank.timeline.steps.intervals import median
from whichrank.timeline.steps.matching import Matched

MOST = 256
FIRST, USUAL = 1 << 20, 25 << 20
"""What DDP's first bucket and all others hold unless bucket_cap_mb says otherwise, in bytes."""
_FEW, _TIMES = 4, 3
"""Buckets that nobody would merge, and how many times as many as usual are many."""
_SCALARS = 256
"""Bytes of an all-reduce that holds counters or a loss, not gradients."""


class Small(Struct, frozen=True):
    """Buckets that are smaller than they need to be: how many a backward pass fills, and how many are usual."""

    buckets: int
    usual: int
    bytes: float


def small_buckets(matched: Matched, signs: Mapping[str, float]) -> Small | None:
    """Whether DDP reduces its gradients in many more buckets than it does by default.

    None without DDP, and where another layer's small all-reduces (SyncBatchNorm) can't be told from buckets."""
    if not signs.get("forwards") or signs.get("sync_batch_norms"):
        return None
    sizes: dict[int, dict[tuple[object, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for what, step in zip(matched.what, matched.step.tolist(), strict=True):
        size = payload(what) or 0
        if what.op == "all_reduce" and step >= 0 and size > _SCALARS:
            sizes[step][what.group, what.ranks, what.dtype].append(size)
    if not sizes:
        return None
    # Gradients that are accumulated may be reduced in several passes of one step.
    passes = max(1.0, signs.get("reducing_forwards", 0.0))
    counts = [sum(map(len, kinds.values())) / passes for kinds in sizes.values()]
    totals = [sum(map(sum, kinds.values())) / passes for kinds in sizes.values()]
    usual = [sum(_usual(sum(kind) / passes) for kind in kinds.values()) for kinds in sizes.values()]
    found = Small(round(median(counts)), round(median(usual)), float(median(totals)))
    return found if found.buckets > _FEW and found.buckets >= _TIMES * found.usual else None


def _usual(size: float) -> int:
    """Buckets that DDP fills with so many bytes by default."""
    return 1 + ceil(max(0.0, size - FIRST) / USUAL)


def buckets_of(one: RankSteps) -> list[Bucket]:
    """The buckets of a typical step of this rank; none without DDP."""
    if not one.signs.get("forwards") or not len(one.ids):
        return []
    step = len(one.ids) // 2
    rows = np.flatnonzero(one.calls.step == step)
    found = []
    for row in rows[np.argsort(one.calls.start[rows], kind="stable")].tolist():
        what = one.collectives[one.calls.what[row]]
        if what.op == "all_reduce":
            begun, over = int(one.calls.start[row]), int(one.calls.end[row])
            found.append(
                Bucket(payload(what), what.dtype or None, (begun - int(one.start[step])) / 1e3, (over - begun) / 1e3)
            )
    return with_contents(found, one.ddp_buckets)[:MOST]


def with_contents(found: list[Bucket], told: Sequence[Filled]) -> list[Bucket]:
    """All-reduces and what DDP put into them: they come in its order, once in every backward pass.

    Others (a loss, counters) may come between them. Where the two don't fit each other, nothing is added.
    """
    if not told:
        return found
    named, place = list(found), 0
    for row, one in enumerate(found):
        filled = told[place % len(told)]
        if one.bytes in (None, filled.bytes):
            named[row] = replace(one, bytes=filled.bytes, parameters=filled.parameters)
            place += 1
    return named if place % len(told) == 0 else found
