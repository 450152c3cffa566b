"""Data between ranks crawls: the path to a host is far slower than the others, or than it was.

## What it finds
Connections between hosts that go on, lose next to nothing, and whose round trips take far longer than at best, or than
those of the other hosts.

## Why it happens
A link that negotiated a lower speed, a rate limit, a queue that is always full, a detour.

## How it decides
By TCP's own measurements on connections that carry bulk data: round trips of 10 ms or more, and twenty times those at
the beginning or those of the others; or of 1 ms where besides less than a tenth of what others carry gets through while
data is on the way. A receiver that does not read is not taken for this. Are all such connections those of one host, and
lead to several others, that host is named; else the link, or the end of it that has others that carry as little,
whatever their round trip was at that moment.

## Example
`ESTAB 0 143144 10.0.0.2:43258 10.0.0.1:39093 rtt:44.883 minrtt:0.003 notsent:88120`

## Fix
Look at the speed of the link (ethtool), at shapers and queues (tc -s qdisc) and at the route of the named host.

## Limits
Where all paths have been slow from the beginning nothing is out of the ordinary: `whichrank bench` measures that.
"""

from __future__ import annotations

from statistics import median

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import hardware_findings, network_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.kernel_events import Weight
from whichrank.timeline.network import paths
from whichrank.timeline.network.connections import Flow
from whichrank.timeline.network.paths import Pace

CODE = "NETI155"
CAUSE = "slow-network"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="slow",
    fix=(
        "Look at the link's speed (ethtool DEVICE), at shapers and queues (tc -s qdisc) and at the route of that host.",
        "Leave the host out until its path is as fast as the others'.",
    ),
    alternatives=(("packet-loss", "what is lost and sent again takes longer as well"),),
    next=(
        NextStep(
            "ethtool DEVICE | grep Speed; tc -s qdisc; ping PEER",
            "shows the link's speed, what waits in its queue, and the round trip without load",
            ("slow-network",),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.connections.known:
        return paths.NO_SOCKETS
    if paths.stuck(case):
        return []
    flows = paths.bulk(case)
    usual, slow = paths.pace_of(flows), paths.crawling(flows)
    if not slow:
        return []
    scope = paths.scope_of(slow)
    trip = median(flow.sender.number("rtt") for flow in slow)
    best = min((ms for flow in slow if (ms := flow.sender.number("minrtt"))), default=usual.trip_ms)
    message = f"Data {network_findings.scope_text(scope)} crawls: a round trip takes {trip:.0f} ms "
    message += f"({min(best, usual.trip_ms):.2g} ms at best or elsewhere){_rates(slow, usual)}."
    refs = network_findings.refs(sorted(slow, key=lambda flow: -flow.sender.number("rtt")))
    weight, subject = Weight("warning"), network_findings.subject(scope)
    return [hardware_findings.found(case, _CLAIM, refs, message, Grade.SUPPORTS, weight=weight, subject=subject)]


def _rates(slow: list[Flow], usual: Pace) -> str:
    """What gets through, and what does elsewhere."""
    through = median(paths.rate(flow) for flow in slow)
    if not through or through * 2 > usual.rate:
        return ""
    return f" and {through / 1e6:.0f} Mbit/s get through where others carry {usual.rate / 1e6:,.0f}"
