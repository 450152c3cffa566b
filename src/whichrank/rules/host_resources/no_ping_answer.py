"""A host of the job answers no ping, while others do.

## What it finds
Hosts to which every ping was lost.

## Why it happens
The host is down, has lost its network, or is cut off by a switch.

## How it decides
By the counts that `ping` prints at its end. Somebody else must have answered, so that pings are not blocked everywhere,
and nobody may have reached the host. Only hosts of the job count, or those that are called like them.

## Example
    --- node7 ping statistics ---
    3 packets transmitted, 0 received, 100% packet loss, time 2078ms

## Fix
Look at the host from its management network: its power, its console, the link of its port.

## Limits
A firewall of that host alone may drop pings and let the job's own packets through.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.kernel_events import Weight
from whichrank.timeline.network import pings

CODE = "HOST159"
CAUSE = "host-lost"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Look at the host from its management network: power, console, the link of its port.",
        "Take it out of the job, and start again from the last checkpoint.",
    ),
    alternatives=(("firewall", "a firewall of that host may drop pings"),),
    next=(NextStep("ssh HOST uptime", "tells whether the host is up after all", (CAUSE,), "none"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.pings:
        return NotEvaluated("pings between the hosts")
    ways = pings.ways(case)
    hosts = pings.silent_hosts(case, ways)
    if not hosts:
        return []
    refs = [ping.ref for way in ways if way.target in hosts for ping in way.pings]
    refs += [way.pings[0].ref for way in ways if not way.silent][:1]
    ranks = tuple(sorted({rank for host in hosts for rank in case.people.ranks_on(host)}))
    message = f"{', '.join(hosts)} {'answers' if len(hosts) == 1 else 'answer'} no ping, while other hosts do."
    subject = Subject(ranks=ranks, hosts=tuple(hosts))
    return [
        hardware_findings.found(case, _CLAIM, refs, message, Grade.SUPPORTS, weight=Weight("error"), subject=subject)
    ]
