"""Packets are lost on the connections between ranks.

## What it finds
Connections between hosts that go on and have to send one per cent or more of their segments again.

## Why it happens
A marginal cable or module, congestion, a policer, a receiver's card that overruns.

## How it decides
By TCP's own counters per connection: segments sent again, without those that had arrived after all, among those sent;
connections of fewer than 500 segments are not judged. Are all lossy connections those of one host, and lead to several
others, that host is named; else the link. Without sockets the counters of whole hosts are compared, from the start to
the last look; they name nobody. Round trips that became far longer besides speak for a link that is too slow instead.

## Example
`ESTAB 0 0 10.0.0.2:50602 10.0.0.1:37883 bytes_sent:214070904 bytes_retrans:3413160 retrans:0/2417`

## Limits
Loss of acknowledgements alone costs no segments and is not seen.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.network import TcpCounters
from whichrank.rules import hardware_findings, network_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.kernel_events import Weight
from whichrank.timeline.network import paths
from whichrank.timeline.network.connections import Flow

CODE = "NETI154"
CAUSE = "packet-loss"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="slow",
    fix=fix(CAUSE),
    alternatives=(("slow-network", "a link that is too slow drops what its queue can't hold"),),
    next=(
        NextStep(
            "ethtool -S DEVICE (twice); nstat -az TcpRetransSegs TcpOutSegs",
            "shows which counter rises while the job runs",
            ("packet-loss", "slow-network"),
            "none",
        ),
    ),
)
_BROKEN, _DEGRADED = 0.01, 0.001
"""One per cent is broken in a data centre, below a tenth per cent is nothing (own thresholds)."""
_ENOUGH = 2_000


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.connections.known and len(case.hardware.tcp) < 2:
        return NotEvaluated("the TCP sockets of the ranks, or TCP's counters of the hosts taken twice")
    if paths.stuck(case):
        return []
    return _by_flows(case) or _by_hosts(case)


def _by_flows(case: Case) -> list[Finding]:
    flows = paths.bulk(case)
    usual = paths.pace_of(flows)
    lossy = [f for f in flows if paths.loss(f) >= _DEGRADED and not paths.crawls(f, usual)]
    worst = max(lossy, key=paths.loss, default=None)
    if worst is None:
        return []
    broken = [f for f in lossy if paths.loss(f) >= _BROKEN]
    scope = paths.scope_of(broken or lossy)
    message = (
        f"Packets are lost {network_findings.scope_text(scope)}: {paths.loss(worst):.1%} of the segments are sent again"
    )
    message += _elsewhere(flows, lossy)
    sure, weight = (Grade.SUPPORTS, Weight("warning")) if broken else (Grade.HINTS, Weight("info"))
    refs = network_findings.refs(sorted(lossy, key=paths.loss, reverse=True))
    return [
        hardware_findings.found(
            case, _CLAIM, refs, message, sure, weight=weight, subject=network_findings.subject(scope)
        )
    ]


def _elsewhere(flows: list[Flow], lossy: list[Flow]) -> str:
    calm = [flow for flow in flows if flow not in lossy]
    return f", {max(map(paths.loss, calm)):.2%} elsewhere." if calm else "."


def _by_hosts(case: Case) -> list[Finding]:
    """Whole hosts: their counters rise with whatever else they do, so nobody is named."""
    looks: dict[str | None, list[TcpCounters]] = {}
    for counters in case.hardware.tcp:
        looks.setdefault(counters.host, []).append(counters)
    shares = {host: share for host, each in looks.items() if (share := _share(each[0], each[-1])) >= _BROKEN}
    if not shares:
        return []
    worst = sorted(shares.items(), key=lambda pair: -pair[1])[:4]
    told = ", ".join(f"{host or 'a host'} {share:.1%}" for host, share in worst)
    message = f"Packets are lost: segments that were sent again since the start: {told}."
    refs = [ref for host in shares for ref in (looks[host][0].ref, looks[host][-1].ref)]
    return [
        hardware_findings.found(
            case, _CLAIM, refs, message, Grade.SUPPORTS, weight=Weight("warning"), subject=Subject()
        )
    ]


def _share(first: TcpCounters, last: TcpCounters) -> float:
    sent, again, spurious = (
        last.counters.get(name, 0) - first.counters.get(name, 0) for name in ("OutSegs", "RetransSegs", "TCPDSACKRecv")
    )
    return max(0, again - spurious) / sent if sent >= _ENOUGH else 0.0
