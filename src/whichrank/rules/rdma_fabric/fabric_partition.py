"""Two adapters can't reach each other through the fabric.

## What it finds
Queue pairs that time out on their way to ready, adapters of different kinds that were paired, and InfiniBand
transfers that nobody ever acknowledged.

## Why it happens
Different subnets, VLANs or partition keys, no subnet manager, a route that is missing, or adapters that belong to
another fabric (storage).

## How it decides
The messages of NCCL or of the verbs library. A transfer that nobody acknowledged (status 12) counts here only where its
place in the run or its addresses fit: see how far the run had come, RoCE or InfiniBand, one network or two.

## Example
`NCCL WARN Call to ibv_modify_qp failed with error Connection timed out`

## Fix
Test the pair alone: ib_write_bw -d DEVICE on both; ibping between the LIDs on InfiniBand. Name only the adapters of
the compute fabric: NCCL_IB_HCA.

## Limits
Why there is no path only the fabric can tell.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.network import rdma_retries

CODE = "RDMA204"
CAUSE = "ib-fabric-partition"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Test the pair alone: ib_write_bw -d DEVICE on both; ibping between the LIDs on InfiniBand.",
        "Name only the adapters of the compute fabric: NCCL_IB_HCA.",
    ),
    blames="host",
    alternatives=(
        ("roce-gid", "a wrong GID index ends the same way on RoCE"),
        ("ib-link-flap", "a link that is down has no path"),
        ("rail-fabric", "the fabric may join only adapters of the same rail"),
    ),
    next=(
        NextStep(
            "ib_write_bw -d DEVICE HOST",
            "passes only where the two adapters reach each other",
            (
                "ib-fabric-partition",
                "roce-gid",
            ),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    of_gid = rdma_retries.of_chosen_gid(case)
    told = [s for s in known_messages.of_cause(case, CAUSE) if s.id != "nccl-ib-status-12" and s not in of_gid]
    unanswered, reading = rdma_retries.unanswered(case)
    more = unanswered if reading == "partition" else []
    if not any(s.signature.role == "root" for s in [*told, *more]):
        return []
    sure = known_messages.grade(told)
    return [building.tell_of(case, _CLAIM, "The adapter of {who} has no path to its peer: {what}.", told or more, sure)]
