"""The job crosses rails that the fabric does not join.

## What it finds
RoCE transfers that nobody ever acknowledged, between addresses of different networks.

## Why it happens
Rail-optimised fabrics give every rail a network of its own and may leave out the routes between them. NCCL crosses
rails where adapters are not numbered alike on all hosts, or where PXN is switched off.

## How it decides
The messages of NCCL or of the verbs library. A transfer that nobody acknowledged (status 12) counts here only where its
place in the run or its addresses fit: see how far the run had come, RoCE or InfiniBand, one network or two.

## Example
`… with status=12 … localGid ::ffff:10.1.1.4 remoteGids::ffff:10.1.2.5`

## Fix
Number adapters alike on all hosts (NCCL_IB_HCA in the same order) and leave NCCL_CROSS_NIC at 0. Keep PXN on
(NCCL_PXN_DISABLE=0), so that data changes rails inside the host; or route between the rails.

## Limits
Networks are told apart by their first three numbers; a fabric with larger networks looks like two.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.network import rdma_retries

CODE = "RDMA205"
CAUSE = "rail-fabric"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Number adapters alike on all hosts (NCCL_IB_HCA in the same order) and leave NCCL_CROSS_NIC at 0.",
        "Keep PXN on (NCCL_PXN_DISABLE=0), so that data changes rails inside the host; or route between the rails.",
    ),
    blames="host",
    alternatives=(
        ("ib-fabric-partition", "the two networks may just lack a route"),
        ("roce-gid", "a wrong GID index may have chosen the address"),
    ),
    next=(
        NextStep(
            "ping -I ADDRESS ADDRESS",
            "between the two addresses that the message names: silence means no route",
            (
                "rail-fabric",
                "ib-fabric-partition",
            ),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = [s for s in known_messages.of_cause(case, CAUSE) if s.id != "nccl-ib-status-12"]
    unanswered, reading = rdma_retries.unanswered(case)
    more = unanswered if reading == "rail" else []
    if not any(s.signature.role == "root" for s in [*told, *more]):
        return []
    sure = known_messages.grade(told)
    return [
        building.tell_of(
            case,
            _CLAIM,
            "Adapters of two networks try to reach each other and get no answer: {what}.",
            told or more,
            sure,
        )
    ]
