"""Data between hosts no longer gets through, although both are up and so are their links.

## What it finds
Established connections between ranks on which the same data is sent again and again without an answer, while both
hosts were looked at and their interfaces are up: something between them drops the packets, in one direction or both.

## Why it happens
A firewall or security group that was changed while the job ran, a connection table that overflowed or forgot idle
connections, a route that vanished, a switch that forwards in one direction only.

## How it decides
By TCP's own counters: data that is on the way, three or more attempts with doubling pauses, none answered. The other
end tells the direction: has it received the data, the answers are dropped; if not, the data. Are all such connections
those of one host, and do they lead to several others, that host is named; else the link. A receiver that does not read
answers, and is never taken for this.

## Example
`ESTAB 0 166960 10.0.0.2:50300 10.0.0.1:41821 backoff:5 unacked:120 lost:120 lastack:12036`

## Fix
Allow all TCP between the hosts; look at firewall rules, connection tracking and routes of the named direction.

## Limits
Where only one end was looked at, a host that is gone can't be told from a path that is blocked.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import hardware_findings, network_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.network import paths
from whichrank.timeline.network.connections import Place

CODE = "NETI152"
CAUSE = "firewall"

_FIX = (
    "Allow all TCP between these hosts (firewall, security group, network policy), in both directions.",
    "See which rule drops: nft list ruleset, iptables -vnL, conntrack -S on both hosts; the route both ways.",
)
_NEXT = (
    NextStep(
        "ss -tin; ping PEER (on both hosts)",
        "backoff that grows while ping answers: this connection is dropped; no answer: the whole path is",
        ("firewall", "host-lost"),
        "none",
    ),
)
_OTHERS = (
    ("packet-loss", "a link that loses nearly everything looks the same"),
    ("mtu-mismatch", "large packets alone may be dropped"),
)
_CLAIM = Claim(CODE, CAUSE, category="hang", fix=_FIX, next=_NEXT, alternatives=_OTHERS)
_LINK_UNKNOWN = Claim(
    CODE, CAUSE, category="hang", fix=_FIX, next=_NEXT,
    alternatives=(("host-lost", "the link of one of them may be down"), *_OTHERS),
)  # fmt: skip


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.connections.known:
        return paths.NO_SOCKETS
    flows = paths.stuck(case)
    if paths.reading(case, flows) != "blocked":
        return []
    scope = paths.scope_of(flows)
    ways = paths.blocked(flows)
    up = paths.links_seen(case, scope)
    count = f"{len(flows)} connection{'s' if len(flows) > 1 else ''}"
    between = network_findings.scope_text(scope)
    message = f"Packets {between} are dropped{_direction(ways, scope.place)}: data of {count} is sent "
    message += (
        f"again without an answer (for {paths.standing_s(flows):.0f} s){', although the links are up' if up else ''}."
    )
    sure = Grade.PROVES if up else Grade.SUPPORTS if ways else Grade.HINTS
    claim, subject = _CLAIM if up else _LINK_UNKNOWN, network_findings.subject(scope)
    return [
        hardware_findings.found(
            case,
            claim,
            network_findings.refs(flows),
            message,
            sure,
            weight=network_findings.weight(case),
            subject=subject,
        )
    ]


def _direction(ways: set[tuple[Place, Place]], place: Place | None) -> str:
    """Where one direction alone is proven to be dead."""
    if place is not None and ways and all(source is place for source, _ in ways):
        return f" on the way from {place.name}"
    if place is not None and ways and all(target is place for _, target in ways):
        return f" on the way to {place.name}"
    if len(ways) == 1:
        source, target = next(iter(ways))
        return f" on the way from {source.name} to {target.name}"
    return " in both directions" if ways else ""
