"""User-space libraries of RDMA are missing.

## What it finds
Verbs libraries that find no provider for their adapter; and containers without any verbs library whose traffic
between hosts goes over a bridge.

## Why it happens
The image has no rdma-core, or single libraries were copied into it.

## How it decides
The words of libibverbs about a device that has no provider. That libibverbs itself is missing is what every host
without RDMA prints: it counts only together with a container bridge as the network, or with a report of slow
communication, in a run that shows no training.

## Example
`libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs0`

## Limits
Whether the hosts have RDMA at all the log does not say: where they have none, nothing is wrong but the speed of
Ethernet.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements

CODE = "RDMA207"
CAUSE = "ib-missing-userspace"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="slow",
    severity="warning",
    blames="host",
    fix=fix(CAUSE),
    alternatives=(
        ("slow-network", "the hosts may have nothing better than Ethernet"),
        ("ib-device-not-exposed", "the devices may not be given to the container"),
    ),
    next=(
        NextStep(
            "ls /sys/class/infiniband; ibv_devinfo",
            "tells whether the host has RDMA and the image can use it",
            (CAUSE,),
            "none",
        ),
    ),
)
_USED = ("nccl-bootstrap-shape-old", "nccl-bootstrap-shape-new", "nccl-net-interface-old")
_BRIDGE = ("172.17.", "172.18.", "172.19.")
"""Docker's default networks."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = known_messages.of_cause(case, CAUSE)
    if any(s.signature.role == "root" for s in told):
        return [
            building.tell_of(
                case,
                _CLAIM,
                "{who} has no library for its RDMA adapter: {what}.",
                told,
                known_messages.grade(told),
            )
        ]
    missing = known_messages.seen(case, "nccl-ibverbs-missing")
    bridge = [s for s in known_messages.seen(case, *_USED) if s.group("address").startswith(_BRIDGE)]
    slow = known_messages.seen(case, "told-slow")
    complained = bool(slow) or any(complaint.category == "slow" for complaint in case.complaints)
    there = known_messages.seen(case, "rdma-device-listed")
    wanted = there or any("NCCL_IB_HCA" in p.env or p.env.get("NCCL_IB_DISABLE") == "0" for p in case.nccl)
    if not missing or not (bridge or complained or wanted) or known_messages.stands_still(case):
        return []
    if known_messages.has_run(case) and not wanted:
        return []
    message = "There is no verbs library, and the data goes over " + (
        "a container bridge." if bridge else "TCP sockets."
    )
    grade = Grade.SUPPORTS if wanted else Grade.HINTS
    return [
        building.found(case, _CLAIM, [s.sign for s in (*missing[:2], *there[:1], *bridge[:2], *slow)], message, grade)
    ]
