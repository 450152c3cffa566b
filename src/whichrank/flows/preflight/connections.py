"""Connections between all hosts: on the rendezvous port, and on high ports as NCCL and Gloo use them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from sys import intern

from whichrank.flows.preflight.peers import ASK_S, Peers
from whichrank.records.inspection import Attempt

Target = tuple[str, int, str]
"""Host, port, kind of port."""
_HIGH_PORTS = ((32, 8), (256, 2))
"""Up to so many hosts -> high ports that are tried of each; one of each where there are more hosts."""
_DEFINITE = ("connected", "rejected", "unresolved", "other service")
"""Outcomes that a second try would not change."""
_TRIES, _SCATTERED = 3, 0.05
"""Tries after the first; the later ones only where no more than this share of all fails."""


def connect(peers: Peers, limit_s: float) -> None:
    """Every host to every other, all at once."""
    offered = _offered(peers)
    targets = {
        host: [target for other, own in offered.items() if other != host for target in own]
        for host in peers.host_helpers.hosts
    }
    attempts = _attempts(peers, targets, limit_s)
    for again in range(_TRIES):
        failed = _worth_another_try(attempts, again)
        if not failed:
            break
        asked: dict[str, list[Target]] = {}
        for a in failed:
            asked.setdefault(a.a, []).append((a.b, a.port, a.kind))
        better = {(a.a, a.b, a.port): a for a in _attempts(peers, asked, limit_s) if a.outcome == "connected"}
        attempts = [better.get((a.a, a.b, a.port), a) for a in attempts] if better else attempts
    peers.found.attempts += attempts
    for attempt in peers.found.attempts:
        if attempt.address:
            peers.reach[attempt.a, attempt.b] = attempt.address


def _worth_another_try(attempts: Sequence[Attempt], again: int) -> list[Attempt]:
    """A connection without an answer is tried once more: a lost packet is not a closed port. A few among many that pass
    the same way may have lost packets again: they are tried twice more."""
    failed = [a for a in attempts if a.outcome not in _DEFINITE]
    if again == 0 or len(failed) > _SCATTERED * len(attempts):
        return [] if again else failed
    ways = {(a.a, a.b) for a in failed}
    passed = {way for a in attempts if a.outcome == "connected" and (way := (a.a, a.b)) in ways}
    return [a for a in failed if (a.a, a.b) in passed]


def _offered(peers: Peers) -> dict[str, list[Target]]:
    """Of each host the ports to try."""
    most = next((ports for hosts, ports in _HIGH_PORTS if len(peers.ports) <= hosts), 1)
    offered: dict[str, list[Target]] = {}
    for host, about in peers.ports.items():
        high = [int(port) for port in about.get("high") or []]
        chosen = high if len(high) <= most else random.sample(high, most)
        own = [(host, port, "high") for port in chosen]
        offered[host] = [(host, int(about["rendezvous"]), "rendezvous"), *own] if about.get("rendezvous") else own
    return offered


def _attempts(peers: Peers, targets: Mapping[str, Sequence[Target]], limit_s: float) -> list[Attempt]:
    requests = {
        host: {
            "do": "connect", "token": peers.token, "limit_s": limit_s,
            "targets": [{"name": peers.name[other], "port": port} for other, port, _ in own],
        }
        for host, own in targets.items()
    }  # fmt: skip
    batches = 1 + max(map(len, targets.values()), default=0) // 256
    told = []
    for host, reply in peers.host_helpers.ask(requests, ASK_S + limit_s * batches).items():
        for (other, port, kind), result in zip(targets[host], reply.result or [], strict=False):
            rtt = result.get("rtt_us")
            # A thousand hosts make two million of them, in few different words.
            outcome, detail, address = (intern(str(result.get(name, ""))) for name in ("outcome", "detail", "address"))
            rtt_us = rtt if isinstance(rtt, int) else None
            told.append(Attempt(host, other, port, kind, outcome, detail, address, rtt_us))
    return told
