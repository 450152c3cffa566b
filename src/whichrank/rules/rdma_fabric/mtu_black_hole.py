"""Large packets do not get through, small ones do: the path's MTU is smaller than the hosts believe.

## What it finds
In a packet capture, connections on which one large segment is sent again and again without an answer while smaller
ones pass; in port listings, RDMA ports of one name with different active MTUs on different hosts, and a host whose
overlay has a larger MTU than its network card.

## Why it happens
A switch port, bridge or tunnel in the middle carries less than the hosts' MTU and its notice is filtered. Different
MTUs at the two ends alone do no harm to TCP.

## How it decides
At least three repetitions of a segment longer than 1,400 bytes that is never acknowledged, in a direction in which
shorter ones were acknowledged before, while the other side still speaks.

## Example
`10.0.0.1:41234 -> 10.0.0.2:50111`: 8,948 bytes sent six times, 100 bytes passed

## Limits
Cards that cut segments themselves show larger ones in a sender's capture than on the wire.
"""

from __future__ import annotations

import re

from whichrank.facts.fixes import fix
from whichrank.model.findings import Endpoint, Finding, Grade, Link, NextStep, NotEvaluated, Subject
from whichrank.records.network import PortState, TcpFlow, Way
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import kernel_events

CODE = "RDMA153"
CAUSE = "mtu-mismatch"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=fix(CAUSE),
    alternatives=(("packet-loss", "heavy loss repeats large segments as well"),),
    next=(
        NextStep(
            "ping -M do -s 8972 PEER; ping -M do -s 1472 PEER",
            "silence for the large one and replies for the small one prove it",
            ("mtu-mismatch", "packet-loss"),
            "none",
        ),
    ),
)
_LARGE, _REPEATED = 1400, 3
_TUNNEL = re.compile(r"vxlan|flannel|geneve|cilium_(?:vxlan|geneve)|antrea|weave|ovn|wg\d|wireguard|tunl\d|gre\d")
_CARD = re.compile(r"en[opsx]\w{1,13}$|eth\d{1,4}$|bond\d{1,4}$|ib\w{1,13}$")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    ports = [p for p in case.hardware.ports if p.port is not None and p.mtu is not None]
    overlays = _overlays(case)
    if not case.hardware.flows and not ports and not overlays:
        return NotEvaluated("a packet capture, ibv_devinfo or ip link of the hosts")
    for flow in case.hardware.flows:
        for way, back, ends in (
            (flow.a_to_b, flow.b_to_a, (flow.a, flow.b)),
            (flow.b_to_a, flow.a_to_b, (flow.b, flow.a)),
        ):
            if _stuck(way, back):
                return [_of_flow(case, flow, way, ends)]
    larger = {host: pair for host, pair in overlays.items() if (pair[0].mtu or 0) > (pair[1].mtu or 0)}
    if larger and len(larger) < len(overlays):
        return [_of_overlays(case, larger)]
    by_device: dict[str, dict[int, list[str]]] = {}
    for port in ports:
        if port.host and port.mtu:
            by_device.setdefault(port.name, {}).setdefault(port.mtu, []).append(port.host)
    for name, mtus in by_device.items():
        if len(mtus) > 1:
            odd = min(mtus, key=lambda mtu: len(mtus[mtu]))
            refs = [next(p.ref for p in ports if p.name == name and p.mtu == mtu) for mtu in mtus]
            message = f"Active MTUs of {name} differ: {odd} on {', '.join(mtus[odd][:4])}, {max(mtus)} elsewhere."
            subject = Subject(hosts=tuple(mtus[odd]))
            weight = kernel_events.state_weight(case)
            return [hardware_findings.found(case, _CLAIM, refs, message, Grade.HINTS, weight=weight, subject=subject)]
    return []


def _overlays(case: Case) -> dict[str, tuple[PortState, PortState]]:
    """By host the tunnel of a container network with the largest MTU, and the card with the largest."""
    links = [p for p in case.hardware.ports if p.port is None and p.mtu and p.host]
    tunnels, cards = ([p for p in links if shape.match(p.name)] for shape in (_TUNNEL, _CARD))
    return {
        host: (max(mine, key=_size), max(carrying, key=_size))
        for host in sorted({p.host for p in links if p.host})
        if (mine := [p for p in tunnels if p.host == host]) and (carrying := [p for p in cards if p.host == host])
    }


def _size(port: PortState) -> int:
    return port.mtu or 0


def _of_overlays(case: Case, larger: dict[str, tuple[PortState, PortState]]) -> Finding:
    host, (tunnel, card) = next(iter(larger.items()))
    message = (
        f"The overlay {tunnel.name} of {host} has an MTU of {tunnel.mtu}, its card {card.name} only {card.mtu}: large "
        "packets are lost there."
    )
    ranks = tuple(sorted({rank for each in larger for rank in case.people.ranks_on(each)}))
    subject = Subject(ranks=ranks, hosts=tuple(larger))
    refs, weight = [card.ref, tunnel.ref], kernel_events.state_weight(case)
    return hardware_findings.found(case, _CLAIM, refs, message, Grade.SUPPORTS, weight=weight, subject=subject)


def _stuck(way: Way, back: Way) -> bool:
    return (
        way.unanswered_again >= _REPEATED
        and way.stuck_octets > _LARGE
        and way.packets - way.again > 2
        and back.packets > 0
        and back.resets == 0
    )


def _of_flow(case: Case, flow: TcpFlow, way: Way, ends: tuple[str, str]) -> Finding:
    message = (
        f"From {ends[0]} to {ends[1]} segments of {way.stuck_octets} bytes never arrive ({way.unanswered_again} tries),"
        " smaller ones do: a hop in between carries less."
    )
    link = Link(Endpoint(ends[0], ""), Endpoint(ends[1], ""))
    weight = kernel_events.weight_of_hang(case)
    return hardware_findings.found(
        case,
        _CLAIM,
        [flow.ref],
        message,
        Grade.SUPPORTS,
        weight=weight,
        subject=Subject(links=(link,)),
        onset_ns=flow.first_ns,
    )
