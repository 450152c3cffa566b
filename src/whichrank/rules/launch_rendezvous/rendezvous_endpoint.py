"""The rendezvous endpoint is wrong or can't be reached.

## What it finds
Processes that can't connect to the store or the rendezvous at the address that they were given.

## Why it happens
A wrong `MASTER_ADDR` or `--rdzv-endpoint`, an endpoint that no node takes for its own (so that nobody hosts the
store), different ids or back ends on different nodes, a port that is blocked, a first node that never started.

## How it decides
Connections that timed out or were refused, or the rendezvous' own connection error, on processes that made no
process group later. Errors of a rendezvous that was up before (heartbeats, shutdown) are consequences of a lost
store. Or torchrun's own account of its settings: several nodes, and an endpoint that each of them takes for itself
(127.0.1.1, localhost), in a job that never made a group.

## Example
`The client socket has timed out after 60000ms while trying to connect to (10.28.1.16, 29400).`

## Fix
Give every node the same endpoint, a name or address of the first node that the others reach, and see that the first
node recognises it as its own (`--rdzv-conf is_host=1`).

## Limits
A blocked port, a host that is down and a wrong address look alike from here.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.model.late_pattern import late
from whichrank.records.events.processes import Traceback
from whichrank.records.events.startup import CommInit, GroupInit, RendezvousError, StoreError
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import exceptions, statements
from whichrank.timeline.job_state.known_messages import seen
from whichrank.timeline.job_state.statements import Statement

CODE = "LNCH104"
CAUSE = "rendezvous-endpoint"

_ALTERNATIVES = (
    ("firewall", "a blocked port looks the same from here"),
    ("missing-rank-at-init", "the first node may never have started"),
)
_FIX = (
    "Give all nodes the same endpoint: a name or address of the first node that the others reach, one port, one id.",
    "If the first node does not host the store itself, use its host name or pass --rdzv-conf is_host=1 there.",
    "Check from another node that the port is open while the first node waits: nc -vz HOST PORT.",
)
_LOOPBACK = late(r"\[?(?:127\.|localhost\b|::1\b|0:0:0:0:0:0:0:1\b)")
_OWN_ADDRESS = (
    "Give an address that the other nodes reach; `hostname -i` gives 127.0.1.1 where /etc/hosts has that for the host.",
    "Take it from the network that connects them: hostname -I, or ip -4 -br addr.",
)
_AFTERWARDS = ("heartbeat", "shutdown", "shut down", "close", "keep-alive")
_CLASSES = ("RendezvousConnectionError", "RendezvousTimeoutError", "RendezvousParameterError")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    if (itself := _at_itself(case)) is not None:
        return [itself]
    signs = [s for s in _failed(case) if not statements.went_on(case, s)]
    if not signs or _explained(case, signs):
        return []
    signs = statements.first_to_fail(signs)
    ranks = statements.unless_all(case, statements.ranks_of(signs))
    target = next((t for s in signs if (t := _target(s))), "")
    sure = Grade.HINTS if all(map(_timed_out, signs)) else Grade.SUPPORTS
    message = (
        f"{building.who(case, ranks, signs)} could not reach the rendezvous{f' at {target}' if target else ''}: "
        f"{building.short(signs[0].ref.quote, 120)}."
    )
    host, _, port = target.rpartition(":")
    probe = NextStep(
        f"nc -vz {host or 'HOST'} {port or 'PORT'}", "tells whether the port is open", ("firewall", CAUSE), "none"
    )
    claim = Claim(CODE, CAUSE, fix=_FIX, alternatives=_ALTERNATIVES, next=(probe,))
    return [building.found(case, claim, signs, message, sure, ranks)]


def _at_itself(case: Case) -> Finding | None:
    """Several nodes that are to meet at an address which each of them takes for itself, and that never trained."""
    several = [s for s in seen(case, "torchrun-nodes-told") if int(s.group("nodes") or 0) > 1]
    meet = [s for s in seen(case, "torchrun-endpoint-told") if _LOOPBACK.match(s.group("peer"))]
    if not several or not meet or case.events(GroupInit, CommInit) or any(len(p) for p in case.progress):
        return None
    where = meet[0].group("peer")
    message = (
        f"The {several[0].group('nodes')} nodes are told to meet at {where}. Every host takes that address for itself, "
        "so they never find each other."
    )
    claim = Claim(CODE, CAUSE, category="hang", fix=_OWN_ADDRESS)
    found = building.found(case, claim, [meet[0].sign, several[0].sign], message, Grade.PROVES)
    return building.about(found, Subject())


def _explained(case: Case, signs: list[Statement]) -> bool:
    """Whether the host of the rendezvous failed for a reason of its own, or those who failed had run. Other processes
    may make a group of their own later."""
    told = case.events(StoreError)
    taken = any(e.what in ("port_in_use", "dns") for e in told)
    # An endpoint that is right and behind a firewall: the rule on firewalls tells.
    taken = taken or any("No route to host" in e.ref.quote for e in told)
    tried = {s.event.pid for s in signs if s.event is not None}
    others = None not in tried and all(e.pid not in (None, *tried) for e in case.events(GroupInit, CommInit))
    had_run = any(len(progress) > 1 for progress in case.progress) or (
        bool(case.events(GroupInit, CommInit)) and not others
    )
    return taken or had_run or exceptions.agent_had_workers(case) or bool(exceptions.own_exceptions(case))


def _failed(case: Case) -> list[Statement]:
    store = statements.of_kind(case, StoreError, where=lambda e: e.what in ("connect_timeout", "connect_failed"))
    rendezvous = [
        s
        for s in statements.of_kind(case, RendezvousError)
        if isinstance(s.event, RendezvousError)
        and s.event.error in _CLASSES
        and not any(w in s.ref.quote.lower() for w in _AFTERWARDS)
    ]
    plain = [s for s in statements.of_kind(case, Traceback) if s.event and exceptions.at_the_store(s.event)]
    return [*store, *rendezvous, *plain]


def _timed_out(sign: Statement) -> bool:
    return isinstance(sign.event, RendezvousError) and sign.event.error == "RendezvousTimeoutError"


def _target(sign: Statement) -> str:
    if not isinstance(sign.event, StoreError):
        return ""
    host, port = sign.event.server, sign.event.port
    return f"{host}:{port}" if host and port is not None else host
