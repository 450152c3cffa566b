"""Large segments don't get through on a connection, small ones do: a hop on the path carries less than the hosts send.

## What it finds
Connections of ranks that stand still with full-sized segments on the way, while smaller data passes between the same
two hosts.

## Why it happens
A switch port, bridge or tunnel in the middle has a smaller MTU than the hosts, and its notice is filtered or never
sent. Different MTUs at the two ends alone do no harm: TCP agrees on the smaller.

## How it decides
By TCP's own counters. Later, smaller segments were acknowledged while the large one before them never was (`sacked`
beside `lost`); or less than one full segment ever got through and other connections between the two hosts go on, or
the hosts use jumbo frames. A small segment that stands still rules it out.

## Example
`ESTAB 0 166912 10.0.0.2:42950 10.0.0.1:34815 backoff:6 unacked:8 lost:7 sacked:1 mss:8948 bytes_acked:57`

## Limits
A path that shrinks while the job runs, with nothing else on the way, is told as blocked.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import hardware_findings, network_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.network import paths

CODE = "RDMA154"
CAUSE = "mtu-mismatch"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=fix(CAUSE),
    alternatives=(("firewall", "the path may drop everything by now"),),
    next=(
        NextStep(
            "ping -M do -s 8972 PEER; ping -M do -s 1472 PEER",
            "silence for the large one and replies for the small one prove it",
            ("mtu-mismatch", "firewall"),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.connections.known:
        return paths.NO_SOCKETS
    flows = paths.stuck(case)
    grade = paths.only_large(case, flows)
    if grade is None or paths.reading(case, flows) != "only small passes":
        return []
    scope = paths.scope_of(flows)
    size = max(int(flow.sender.number("mss")) for flow in flows)
    message = (
        f"Segments of {size} bytes don't get through {network_findings.scope_text(scope)}, smaller ones do: a hop on "
        "the path carries less than the hosts' MTU."
    )
    return [
        hardware_findings.found(
            case,
            _CLAIM,
            network_findings.refs(flows),
            message,
            grade,
            weight=network_findings.weight(case),
            subject=network_findings.subject(scope),
        )
    ]
