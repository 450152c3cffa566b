"""The path carries smaller packets than the hosts believe.

## What it finds
Words of ping or of the kernel that a packet does not fit the path.

## Why it happens
A switch or tunnel on the way has a smaller MTU than the hosts. Small messages pass, large ones stall.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`From 10.77.1.1 icmp_seq=1 Frag needed and DF set (mtu = 1500)`

## Fix
Give hosts and switches one MTU along the whole path, or lower the MTU of the hosts to that of the smallest hop.
net.ipv4.tcp_mtu_probing=1 goes around it for TCP.

## Limits
Different MTUs at the two ends alone do no harm to TCP, which negotiates the smaller one.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "RDMA212"
CAUSE = "mtu-mismatch"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        (
            "Give hosts and switches one MTU along the whole path, or lower the MTU of the hosts to that of the "
            "smallest hop."
        ),
        "net.ipv4.tcp_mtu_probing=1 goes around it for TCP.",
    ),
    category="hang",
    blames="host",
    next=(
        NextStep(
            "ping -M do -s 8972 HOST",
            "silence while -s 1472 answers is a black hole for large packets",
            ("mtu-mismatch",),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "The path does not carry packets of the size that the hosts send: {what}.")
