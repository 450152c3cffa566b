"""DDP's buckets, as the all-reduces of one step show them: their order, their sizes, and when each began."""

from __future__ import annotations

import numpy as np

from whichrank.model.step_report import Bucket
from whichrank.records.steps import RankSteps
from whichrank.timeline.steps.collectives import payload

MOST = 256


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
    return found[:MOST]
