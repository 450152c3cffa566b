"""Pings between hosts of the job lose some of their packets.

## What it finds
Ways on which some packets are answered and others are not.

## Why it happens
A bad cable, optic or port, a queue that overflows, a broken rule of traffic control.

## How it decides
By the counts that `ping` prints at its end, from one packet in a hundred on and two at least. The host is named that
stands at an end of all ways that lose packets, and of none that does not.

## Example
    --- node7 ping statistics ---
    100 packets transmitted, 88 received, 12% packet loss, time 1665ms

## Fix
Look at the counters of adapter and switch port of that host; replace cable or optic.

## Limits
Without a ping between other hosts the two ends can't be told apart.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Endpoint, Finding, Grade, Link, NextStep, NotEvaluated, Subject
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.kernel_events import Weight
from whichrank.timeline.network import pings

CODE = "NETI156"
CAUSE = "packet-loss"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="slow",
    fix=fix(CAUSE),
    next=(
        NextStep("ethtool -S DEVICE (twice)", "shows which counter rises while the job runs", (CAUSE,), "none"),
        NextStep("ping -c 100 -i 0.2 HOST (between other hosts)", "tells at which end it is", (CAUSE,), "none"),
    ),
)
_SHARE, _FEWEST = 0.01, 2


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.pings:
        return NotEvaluated("pings between the hosts")
    ways = pings.ways(case)
    lossy = [way for way in ways if way.lost >= max(_FEWEST, _SHARE * way.sent) and not way.silent]
    if not lossy:
        return []
    worst = max(lossy, key=lambda way: way.lost / way.sent)
    host = pings.at_one_end(lossy, ways)
    if host is not None:
        between = f"between {host} and the other hosts"
        subject = Subject(ranks=case.people.ranks_on(host), hosts=(host,))
    elif len(lossy) == 1 and len(worst.ends) > 1:
        between = f"between {worst.source} and {worst.target}"
        subject = Subject(links=(Link(Endpoint(worst.source, ""), Endpoint(worst.target, "")),))
    else:
        between, subject = "between the hosts", Subject()
    message = f"Packets are lost {between}: {worst.lost} of {worst.sent} pings to {worst.target} had no answer."
    refs = [ping.ref for way in lossy for ping in way.pings]
    refs += [way.pings[0].ref for way in ways if not way.lost][:1]
    return [
        hardware_findings.found(case, _CLAIM, refs, message, Grade.SUPPORTS, weight=Weight("warning"), subject=subject)
    ]
