"""Random plans: every fault in jobs of many shapes, with evidence in many states."""

from __future__ import annotations

import random

from tests.jobs.pretend import Plan

FAULTS = (
    "none",
    "stuck",
    "skip",
    "skip_step",
    "extra",
    "alone",
    "swap",
    "cross",
    "orphan",
    "p2p_cycle",
    "size",
    "dtype",
    "uneven",
    "kernel",
    "stalled",
    "straggler",
)
# Where the dumps of those involved are needed to tell anything, none are lost.
WHOLE = ("none", "cross", "orphan", "p2p_cycle", "stalled", "straggler")


def random_plan(seed: int) -> Plan:
    """The plan of a seed; the faults take turns."""
    rng = random.Random(seed * 7919 + 1)
    fault = FAULTS[seed % len(FAULTS)]
    tp, dp, pp = rng.choice((1, 2, 2, 3, 4, 5, 8)), rng.choice((1, 2, 2, 3, 4, 7)), rng.choice((1, 1, 1, 2, 3))
    if fault == "cross":
        tp = max(2, tp)
    if fault in ("orphan", "p2p_cycle"):
        pp = max(2, pp)
    if tp * dp * pp < 3:
        dp = 4
    while tp * dp * pp > 48:
        dp = max(1, dp // 2)
        tp = max(2, tp - 1)
    return Plan(
        tp=tp,
        dp=dp,
        pp=pp,
        steps=16 if fault == "straggler" else rng.choice((4, 6, 9)),
        layers=rng.choice((1, 2, 4)),
        buckets=rng.choice((1, 3)),
        eager=rng.random() < 0.5,
        coalesce=rng.random() < 0.3,
        fault=fault,
        pairing=rng.choice(("strict", "loose", "partial")) if fault in ("size", "dtype") else "strict",
        timing=fault == "kernel" or rng.random() < 0.5,
        wrap=rng.choice((0, 0, 0, 60)) if fault != "straggler" else 0,
        lose_culprit=fault == "stuck" and rng.random() < 0.3,
        lose=rng.choice((0, 0, 0, 1)) if fault not in WHOLE else 0,
        repeat_names=rng.random() < 0.4,
        skew_ns=rng.choice((0, 400_000_000)),
        formats=rng.choice((("pickle",), ("pickle",), ("json",), ("pickle", "json"))),
        second_recorder=rng.random() < 0.15,
        seed=seed,
    )
