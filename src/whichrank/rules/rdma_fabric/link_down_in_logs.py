"""A link of the fabric went down during the run.

## What it finds
Port errors that the adapter reports to NCCL, fatal events and failures of an adapter, and transfers that stay
unanswered in a run that had worked.

## Why it happens
A cable, a transceiver, a switch port or an adapter is failing; or a switch was restarted.

## How it decides
The messages of NCCL or of the verbs library. A transfer that nobody acknowledged (status 12) counts here only where its
place in the run or its addresses fit: see how far the run had come, RoCE or InfiniBand, one network or two.

## Example
`NET/IB : mlx5_7:1 Got async event : port error`

## Fix
Look at exactly that adapter and port: ibstat, the kernel log (mlx5), link_downed before and after. Take the host out,
or leave the adapter out with NCCL_IB_HCA=^device; replace cable or adapter.

## Limits
The end that prints the message is not always the broken one: the switch sits between the two.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.network import rdma_retries

CODE = "RDMA203"
CAUSE = "ib-link-flap"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Look at exactly that adapter and port: ibstat, the kernel log (mlx5), link_downed before and after.",
        "Take the host out, or leave the adapter out with NCCL_IB_HCA=^device; replace cable or adapter.",
    ),
    blames="host",
    alternatives=(
        ("host-lost", "a host that is gone does not acknowledge either"),
        ("roce-gid", "a GID that changed breaks the path too"),
        ("packet-loss", "a lossy path exhausts its retries"),
    ),
    next=(
        NextStep(
            "ibstat; dmesg -T | grep -i mlx5",
            "shows the state of the port and when it changed",
            (
                "ib-link-flap",
                "host-lost",
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
    more = unanswered if reading == "link" else []
    if not any(s.signature.role == "root" for s in [*told, *more]):
        return []
    sure = known_messages.grade(told)
    return [building.tell_of(case, _CLAIM, "A link of {who} failed: {what}.", told or more, sure)]
