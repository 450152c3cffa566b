"""A host has lost its link: nothing that it sends or should receive gets through.

## What it finds
A host whose network interface has no carrier, while its connections to the others are stalled.

## Why it happens
A cable, a module, a switch port or the switch itself; an interface that was taken down.

## How it decides
The interface that carries the host's addresses is down or without carrier at the last look, and the connections of
ranks on that host retransmit the same data without an answer. Interfaces that carry no traffic of the job are not
looked at.

## Example
`2: eth0: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc noqueue state LOWERLAYERDOWN carrier_changes 3`

## Fix
Check cable, module and switch port of that host; start again without it meanwhile.

## Limits
Which end of the cable is at fault can't be seen from the host.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.model.findings import Endpoint, Finding, Grade, Link, NextStep, NotEvaluated, Subject
from whichrank.rules import hardware_findings, network_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.network import paths

CODE = "HOST156"
CAUSE = "host-lost"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "Check cable, module and switch port of that host; bring the interface up again (ip link set DEVICE up).",
        "Start again without the host until it holds.",
    ),
    alternatives=(("ib-link-flap", "a link that comes back by itself has only flapped"),),
    next=(
        NextStep("ip -s link; ethtool DEVICE; dmesg -T | grep -i link", "shows since when, and what the driver says",
                 ("host-lost", "ib-link-flap"), "none"),
    ),
)  # fmt: skip


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.connections.known:
        return paths.NO_SOCKETS
    flows = paths.stuck(case)
    if paths.reading(case, flows) != "link down":
        return []
    down = paths.link_down(case, paths.scope_of(flows))
    if down is None:
        return []
    place, port = down
    message = (
        f"{network_findings.named(place)} has lost its link: {port.device} is {port.state or 'DOWN'}, and its "
        "connections to the others are stalled."
    )
    link = Link(Endpoint(place.name, port.device), Endpoint("", ""))
    subject = Subject(ranks=place.ranks, hosts=(place.name,), links=(link,))
    refs = [replace(port.ref, host=place.name), *network_findings.refs(flows)]
    return [
        hardware_findings.found(
            case, _CLAIM, refs, message, Grade.PROVES, weight=network_findings.weight(case), subject=subject
        )
    ]
