"""Collectives by kind, size and group: how long they take, how long they only wait, how fast they move data."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from whichrank.facts.hardware.bandwidth import bus_factor, expected
from whichrank.model.step_report import CollectiveShare
from whichrank.records.profiles.trace import Collective, Longs
from whichrank.timeline.steps.intervals import distinct, median
from whichrank.timeline.steps.matching import Matched

FEWEST_BYTES = 1 << 20
"""Below this a collective's time is latency, and its bandwidth says nothing."""


_ALGORITHM = re.compile(
    r"(?<![A-Za-z])(RING|Ring|TREE|Tree|NVLS_TREE|NVLS|COLLNET_DIRECT|COLLNET_CHAIN|CollNet|PAT)_?(LL128|LL|SIMPLE|Simple)?"
)


def algorithm(kernel: str) -> str | None:
    """What NCCL chose, by the name of its kernel: AllReduce_Sum_f32_RING_LL, ncclAllReduceRingLLKernel_…"""
    name = kernel.partition("(")[0]
    found = _ALGORITHM.search(name) or _OLD.search(name)
    if found is None:
        return None
    return " ".join(part.lower().replace("_", " ") for part in found.groups() if part)


_OLD = re.compile(r"nccl[A-Z]\w{0,100}?(Ring|Tree|CollNet)(LL128|LL)?Kernel")


def payload(what: Collective) -> int | None:
    """The size that bandwidth is counted by (nccl-tests): the gathered array, or the rank's input."""
    if what.op == "all_gather":
        return what.received or (what.sent * what.size if what.sent is not None and what.size else None)
    return what.sent if what.sent is not None else what.received


def shares(matched: Matched, transfer: dict[int, float], steps: int) -> list[CollectiveShare]:
    """The kinds of collectives, those that take the most time first."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    seen = np.flatnonzero(np.diff(matched.first))
    for op in seen.tolist():
        what = matched.what[op]
        groups[what.op, what.desc or what.group, what.ranks, what.size, payload(what)].append(op)
    last = np.zeros(len(matched.what), np.int64)
    if len(seen):
        last[seen] = np.maximum.reduceat(matched.start, matched.first[seen])
    waits = last[matched.op] - matched.start
    found = [_share(matched, transfer, ops, steps, waits) for ops in groups.values()]
    return sorted(found, key=lambda share: -(share.time_us or share.waiting_us or 0.0) * share.per_step)


def _share(matched: Matched, transfer: dict[int, float], ops: list[int], steps: int, waits: Longs) -> CollectiveShare:
    what = matched.what[ops[0]]
    size = payload(what)
    chosen = np.zeros(len(matched.what), np.bool_)
    chosen[ops] = True
    rows = np.flatnonzero(chosen[matched.op])
    members = len(distinct(matched.rank[rows]))
    together = len(matched.ranks) > 1 and members > 1
    seen = what.size is None or members == what.size
    timed = all(one.ends_known for one in matched.ranks)
    moving = float(median([transfer.get(op, 0.0) for op in ops])) if together and seen and timed else None
    ranks = what.size or (members if together else None)
    bandwidth = None
    if size is not None and ranks and size >= FEWEST_BYTES and moving:
        bandwidth = size / moving * (bus_factor(what.op, ranks) or 1.0)
    hosts = {matched.ranks[i].host_name for i in distinct(matched.rank[rows])}
    nodes = len(hosts) if "" not in hosts else (1 if ranks and ranks <= 8 and (what.size or 0) <= 8 else 0)
    usual = expected(matched.ranks[0].accelerator, nodes, ranks, what.op, size) if size and ranks and nodes else None
    one = matched.ranks[int(matched.rank[rows[0]])]
    kernel = one.names[int(one.calls.name[int(matched.call[rows[0]])])]
    return CollectiveShare(
        op=what.op or "unknown",
        group=what.desc if what.desc not in ("", "undefined") else what.group,
        ranks=ranks,
        bytes=size,
        per_step=len(ops) / max(1, steps),
        time_us=float(median(matched.end[rows] - matched.start[rows])) / 1e3 if timed else None,
        waiting_us=float(waits[rows].mean()) / 1e3 if together else None,
        moving_us=moving / 1e3 if moving is not None else None,
        busbw_gbs=bandwidth,
        expected_gbs=usual.busbw if usual else None,
        kernel=kernel,
        algorithm=algorithm(kernel),
    )
