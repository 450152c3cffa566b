"""Ranks try to connect to each other and get no answer.

## What it finds
Connections of ranks that were asked for several times and stay unanswered, and half-open ones at the other end.

## Why it happens
A firewall or security group drops the packets: it often lets the rendezvous port through and not the ports that the
system chooses for NCCL and Gloo. An address that does not lead to the peer stays silent too.

## How it decides
By sockets in the state SYN-SENT whose opening was repeated twice or more. A process that does not listen answers with a
refusal instead. A listener that was seen at the other end, or half-open connections there, prove that the host is up.
Of two hosts the one is named whose own firewall rules drop what they do not list.

## Example
`SYN-SENT 0 1 10.0.0.2:41234 10.0.0.1:29500 timer:(on,3.200ms,3)`

## Fix
Allow all TCP between the hosts on that network, both ways.

## Limits
Without the other end's sockets a host that is gone, and an address that leads nowhere, look the same.
"""

from __future__ import annotations

from collections import Counter

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import hardware_findings, network_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state import known_messages
from whichrank.timeline.network import paths
from whichrank.timeline.network.connections import Flow
from whichrank.timeline.network.paths import Scope

CODE = "NETI153"
CAUSE = "firewall"

_FIX = (
    "Allow all TCP between the hosts on that network (firewall, security group): the rendezvous port is not enough.",
    "If the address is not the one that hosts should use, name the interface: NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME.",
)
_NEXT = (
    NextStep(
        "ss -tn state syn-recv (on the peer)",
        "half-open connections there mean that the way back is blocked",
        ("firewall",),
        "none",
    ),
)
_PROVEN = Claim(CODE, CAUSE, category="hang", fix=_FIX, next=_NEXT)
_LIKELY = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=_FIX,
    next=_NEXT,
    alternatives=(
        ("host-lost", "a host that is gone does not answer either"),
        ("wrong-interface", "an address that does not lead to the peer stays silent too"),
    ),
)
_POLICY = "host-drops-by-policy"
_AT_ONCE = 2
_TRIES = 2
"""After one and three seconds: a listener that is only busy answers the first or the second."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.connections.known:
        return paths.NO_SOCKETS
    waiting = [f for f in case.connections.opening if max(f.sender.tries, f.sender.number("total_retrans")) >= _TRIES]
    waiting = waiting or _without_tries(case)
    if not waiting:
        return []
    scope = _that_drops(case, waiting, paths.scope_of(waiting))
    peers = sorted({f"{f.sender.peer}:{f.sender.peer_port}" for f in waiting})
    back = [s for s in case.connections.half_open if any(s.there == f.sender.here for f in waiting)]
    proven = bool(back) or all(f.receiver is not None or _answers(case, f) for f in waiting)
    message = f"Connections {network_findings.scope_text(scope)} get no answer: {', '.join(peers[:3])}"
    message += " received the request, its answer is dropped." if back else _why(waiting, up=proven)
    claim, sure = (_PROVEN, Grade.PROVES) if proven else (_LIKELY, Grade.SUPPORTS)
    refs = [
        *network_findings.refs(waiting)[:3],
        *(s.ref for s in back[:2]),
        *(f.receiver.ref for f in waiting[:1] if f.receiver),
    ]
    return [
        hardware_findings.found(
            case, claim, refs, message, sure, weight=network_findings.weight(case),
            subject=network_findings.subject(scope),
        )
    ]  # fmt: skip


def _that_drops(case: Case, waiting: list[Flow], scope: Scope) -> Scope:
    """The one end of the pair whose firewall drops what it does not list, where its rules are at hand."""
    if scope.pair is None:
        return scope
    dropping = {short_name(s.sign.host) for s in known_messages.seen(case, _POLICY) if s.sign.host}
    asked = {flow.target for flow in waiting}
    ends = [place for place in scope.pair if place in asked and short_name(place.name) in dropping]
    return Scope(place=ends[0]) if len(ends) == 1 else scope


def _without_tries(case: Case) -> list[Flow]:
    """Where `ss` was not asked for timers: several at once to one peer, which answers others. On a network a request
    waits for less than a millisecond."""
    opening = case.connections.opening
    asked = Counter(flow.pair for flow in opening if not flow.sender.values and not flow.sender.timer)
    return [flow for flow in opening if asked[flow.pair] >= _AT_ONCE and _answers(case, flow)]


def _answers(case: Case, flow: Flow) -> bool:
    """Whether the peer is up: its own sockets are at hand, or it answered a ping."""
    return flow.target.seen or any(ping.received and ping.address == flow.sender.peer for ping in case.pings)


def _why(waiting: list[Flow], *, up: bool) -> str:
    if all(flow.receiver is not None for flow in waiting):
        return ", although somebody listens there: packets are dropped."
    if up:
        return ", although that host is up: packets are dropped."
    return "; a process that does not listen would have refused."
