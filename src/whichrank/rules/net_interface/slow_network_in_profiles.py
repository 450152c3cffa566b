"""By the profiles, large collectives between hosts move data far slower than such hardware does.

## What it finds
Collectives of 16 MiB and more whose bus bandwidth, counted from the arrival of the last rank, is below a third of what
is published for these GPUs, ranks and nodes.

## Why it happens
Traffic over plain Ethernet instead of InfiniBand or EFA, a rate limit, a congested or degraded fabric, GPUDirect RDMA
that is off.

## How it decides
Only time after the last member's arrival counts, so that a late rank is not taken for a slow network. All members must
have been profiled, and the published figure must be for the same GPU, operation, ranks and nodes.

## Example
all_reduce of 256 MiB over 4 nodes moves 9 GB/s; 229 GB/s are usual.

## Fix
Run `whichrank bench` and `whichrank preflight` on the hosts; read NCCL_DEBUG=INFO for the transport it chose.

## Limits
Without published figures for the hardware nothing is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

CODE = "NETI301"
CAUSE = "slow-network"
LEAST_BYTES, SHARE = 16 << 20, 1 / 3


def judge(case: Case) -> list[Finding] | NotEvaluated:
    steps = case.steps
    if steps is None:
        return NotEvaluated("profiles of the ranks (torch.profiler)")
    hosts = sorted({one.host_name for one in steps.ranks})
    known = [c for c in steps.collectives if c.busbw_gbs and c.expected_gbs and (c.bytes or 0) >= LEAST_BYTES]
    if len(hosts) < 2 or not known:
        return NotEvaluated("profiles of all ranks on several hosts, with sizes and published bandwidths")
    slow = [c for c in known if (c.busbw_gbs or 0) < SHARE * (c.expected_gbs or 0)]
    if not slow or len(slow) < len(known) / 2:
        return []
    worst = min(slow, key=lambda c: (c.busbw_gbs or 0) / (c.expected_gbs or 1))
    size = f"{(worst.bytes or 0) >> 20} MiB"
    words = f"{worst.op} of {size} moves {worst.busbw_gbs:.3g} GB/s, {worst.expected_gbs:.0f} are usual"
    return [
        Finding(
            code=CODE,
            cause=CAUSE,
            category="slow",
            severity="warning",
            grade=Grade.SUPPORTS,
            kind="timing",
            subject=Subject(hosts=tuple(hosts)),
            message=f"Collectives between {len(hosts)} hosts are slow: {words}.",
            evidence=(Ref(steps.ranks[0].source, worst.kernel[:80], words, steps.ranks[0].rank),),
            alternatives=(Alternative("gdr-disabled", "GPUDirect RDMA may be off"),),
            next=(NextStep("whichrank bench", "measures the same without the job", (CAUSE,), "load"),),
            fix=("Find out which transport NCCL uses (NCCL_DEBUG=INFO) and why it is not the fast one.",),
        )
    ]
