"""Attempts to connect stay without any answer.

## What it finds
In a packet capture, connections whose opening segment was sent three times or more and never answered, neither by the
peer nor by a refusal.

## Why it happens
A firewall, a security group or a wrong route drops the packets, or the host is gone. A process that does not listen
answers with a refusal instead.

## How it decides
By the opening segments (SYN) of each connection: several of one side, nothing at all of the other.

## Example
`10.0.0.1:41234 -> 10.0.0.2:29500`: 5 SYN, no answer

## Fix
Allow all TCP between the hosts on that network: NCCL, Gloo and the store's clients use ports that the system chooses.

## Limits
A capture of one host alone does not tell whether the way there or the way back is blocked.
"""

from __future__ import annotations

from whichrank.model.findings import Endpoint, Finding, Grade, Link, NextStep, NotEvaluated, Subject
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import kernel_events

CODE = "NETI151"
CAUSE = "firewall"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=("Allow all TCP between the hosts on that network (firewall, security group); check the route both ways.",),
    alternatives=(
        ("host-lost", "a host that is gone does not answer either"),
        ("wrong-interface", "an address that does not lead to the peer stays silent too"),
    ),
    next=(
        NextStep(
            "ss -tn state syn-recv (on the peer)",
            "half-open connections there mean that the way back is blocked",
            ("firewall",),
            "none",
        ),
    ),
)
_TRIES = 3


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.hardware.flows:
        return NotEvaluated("a packet capture")
    silent = [f for f in case.hardware.flows if f.a_to_b.opens >= _TRIES and f.b_to_a.packets == 0]
    if not silent:
        return []
    first = silent[0]
    peers = sorted({f.b for f in silent})
    message = (
        f"{first.a} tried {first.a_to_b.opens} times to connect to {', '.join(peers[:3])} and got no answer at all."
    )
    link = Link(Endpoint(first.a, ""), Endpoint(first.b, ""))
    weight = kernel_events.weight_of_hang(case)
    return [
        hardware_findings.found(
            case, _CLAIM, [f.ref for f in silent[:4]], message, Grade.SUPPORTS, weight=weight,
            subject=Subject(links=(link,)),
            onset_ns=first.first_ns,
        )
    ]  # fmt: skip
