"""A host no longer answers: all connections to it are stalled, and nothing was heard from it.

## What it finds
Connections of ranks that lead to one host and on which data is retransmitted without an answer, where that host
itself left no evidence.

## Why it happens
The host crashed, lost power or its network, or was taken away; or the path to it is blocked.

## How it decides
By TCP's counters of the hosts that could be looked at. A process that only died would have closed its connections:
its kernel does that.

## Example
`ESTAB 0 83432 10.0.0.3:42774 10.0.0.2:38283 backoff:7 unacked:59 lost:59 lastack:58052`

## Fix
See whether the host is up; drain it and start again without it.

## Limits
A blocked path looks the same until the host's own sockets are looked at: collect them there too.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.rules import hardware_findings, network_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.network import paths

CODE = "HOST157"
CAUSE = "host-lost"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "See whether the host is up (ping, its management controller); drain it and start again without it.",
        "If it is up, look for what drops the packets on the way: firewall, security group, route, link.",
    ),
    alternatives=(("firewall", "a blocked path looks the same from here"),),
    next=(
        NextStep(
            "whichrank collect (on that host)",
            "its own sockets tell whether it is up and which direction is dead",
            ("host-lost", "firewall"),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.connections.known:
        return paths.NO_SOCKETS
    flows = paths.stuck(case)
    place = paths.silent(paths.scope_of(flows))
    if paths.reading(case, flows) != "silent" or place is None:
        return []
    ranks = tuple(rank for rank in range(case.world) if case.people.host_of(rank) == place.name)
    since = f"{paths.standing_s(flows):.0f} s"
    message = f"{place.name} no longer answers: data to it is retransmitted without an answer (for {since})."
    subject = Subject(ranks=ranks, hosts=(place.name,))
    return [
        hardware_findings.found(
            case,
            _CLAIM,
            network_findings.refs(flows),
            message,
            Grade.HINTS,
            weight=network_findings.weight(case),
            subject=subject,
        )
    ]
