"""Large pings get no answer where small ones do: a hop in between carries less than the hosts believe.

## What it finds
Pairs of hosts between which every large ping was lost and small ones were answered.

## Why it happens
A switch port, bridge or tunnel in the middle has a smaller MTU than the hosts, and its notice is filtered.

## How it decides
By the counts that `ping` prints at its end, two packets at least of each size. The host is named that stands at an end
of all such pairs, and of none where large packets pass.

## Example
    PING node3 (10.45.0.13) 8972(9000) bytes of data.
    --- node3 ping statistics ---
    3 packets transmitted, 0 received, 100% packet loss, time 2025ms

## Fix
Give the ports of that path the MTU of the hosts, or the hosts the MTU of the path.

## Limits
A ping without `-M do` may be cut into pieces, which pass; such pings show nothing.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Endpoint, Finding, Grade, Link, NextStep, NotEvaluated, Subject
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import kernel_events
from whichrank.timeline.network import pings

CODE = "RDMA156"
CAUSE = "mtu-mismatch"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=fix(CAUSE),
    next=(NextStep("ip link show DEVICE; the MTU of the switch port", "tells who carries less", (CAUSE,), "none"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.pings:
        return NotEvaluated("pings between the hosts")
    large = pings.ways(case, jumbo=True)
    passing = {way.ends for way in pings.ways(case) if not way.silent}
    stuck = [way for way in large if way.silent and way.ends in passing]
    if not stuck:
        return []
    first = stuck[0]
    host = pings.at_one_end(stuck, large)
    if host is not None:
        between, subject = f"{host} and the other hosts", Subject(ranks=case.people.ranks_on(host), hosts=(host,))
    elif len(first.ends) > 1:
        between = f"{first.source} and {first.target}"
        subject = Subject(links=(Link(Endpoint(first.source, ""), Endpoint(first.target, "")),))
    else:
        between, subject = "the hosts", Subject()
    message = (
        f"Between {between} pings of {first.pings[0].size} bytes are lost and small ones answered: a hop carries less."
    )
    small = [way for way in pings.ways(case) if way.ends == first.ends]
    refs = [way.pings[0].ref for way in (*stuck[:2], *small[:1], *(way for way in large if not way.lost))]
    weight = kernel_events.weight_of_hang(case)
    return [hardware_findings.found(case, _CLAIM, refs[:4], message, Grade.SUPPORTS, weight=weight, subject=subject)]
