"""A rank that starts has no connection to the store, which the others have.

## What it finds
Ranks that create the process group and never reached the store: they look at another port or address, or what
lies between lets them not through.

## Why it happens
MASTER_ADDR or MASTER_PORT differ between ranks, hosts or launch scripts; a rank of an earlier job; a firewall.

## How it decides
By the connections of the ranks while they start. Who has the store waits for the others inside the rendezvous, and
listens there; if the launcher has it, it is where several ranks are connected. A rank that is inside the rendezvous
without such a connection is named. Where nobody is connected to rank 0's store, rank 0 is named if it listens at
another port than the environment says; else the others, if they were refused where they look.

## Example
Ranks 1 and 3 are connected to rank 0 at port 29500; rank 2 is not, and stands in `_create_c10d_store`.

## Fix
Give all ranks the same MASTER_ADDR and MASTER_PORT; look from that host whether the port can be reached.

## Limits
Needs the connections of the ranks, as `whichrank run` and `collect` take them.
"""

from __future__ import annotations

from collections import Counter

from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.events.run_state import Environment
from whichrank.records.network import TcpSocket
from whichrank.rules import wording
from whichrank.timeline.case import Case

CODE = "LNCH109"
CAUSE = "rendezvous-endpoint"

_RENDEZVOUS = ("rendezvous.py",)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    sockets = case.hardware.sockets_of_ranks()
    if len(sockets) < 2:
        return NotEvaluated("the connections of the ranks (whichrank run takes them)")
    outside = sorted(rank for rank in sockets if _in_rendezvous(case, rank))
    if not outside:
        return []
    opened = {r: {s.local_port for s in sockets[r] if s.state == "LISTEN"} for r in outside}
    hosts = {r for r in outside if opened[r]}
    ports = set().union(*opened.values()) or _common_ports(sockets)
    reached = {r for r, own in sockets.items() if r not in hosts and _connected(own, ports)}
    if reached:
        alone = tuple(r for r in outside if r not in reached and r not in hosts)
        return [_finding(alone, sockets, "the others are connected to it")] if alone else []
    return _store_elsewhere(case, sockets, hosts, tuple(r for r in outside if r not in hosts))


def _common_ports(sockets: dict[int, list[TcpSocket]]) -> set[int]:
    """Where the launcher has the store: the ports that several ranks are connected to."""
    users = Counter(port for own in sockets.values() for port in {s.peer_port for s in own if s.state == "ESTAB"})
    return {port for port, count in users.items() if count > 1}


def _in_rendezvous(case: Case, rank: int) -> bool:
    """Whether its main thread is where the store is opened."""
    stack = case.stacks.get(rank)
    if stack is None:
        return False
    return any(frame.file.endswith(_RENDEZVOUS) for thread in stack.threads for frame in thread.frames)


def _connected(own: list[TcpSocket], ports: set[int]) -> bool:
    return any(s.state == "ESTAB" and s.peer_port in ports for s in own)


def _store_elsewhere(
    case: Case, sockets: dict[int, list[TcpSocket]], hosts: set[int], others: tuple[int, ...]
) -> list[Finding]:
    """Nobody reached the store: its host has opened it where nobody looks, or the others look elsewhere."""
    told = {port for e in case.events(Environment) if (port := e.variables.get("MASTER_PORT")) is not None}
    if len(told) != 1 or len(hosts) != 1:
        return []
    (rank,), (port,) = hosts, told
    listening = sorted({s.local_port for s in sockets[rank] if s.state == "LISTEN"})
    if not port.isdigit():
        return []
    if int(port) in listening:
        # Where a host does not answer at all, the question stays open (SYN-SENT): these were refused.
        refused = all(s.state != "SYN-SENT" for other in others for s in sockets[other])
        why = f"it waits at port {port}, where they should connect, and nobody connects"
        return [_finding(others, sockets, why)] if others and refused else []
    why = f"it listens at port {', '.join(map(str, listening[:4]))}, and the others look at {port}"
    return [_finding((rank,), sockets, why)]


def _finding(ranks: tuple[int, ...], sockets: dict[int, list[TcpSocket]], why: str) -> Finding:
    others = tuple(sorted(rank for rank in sockets if rank not in ranks))
    verb = "has" if len(ranks) == 1 else "have"
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=Grade.SUPPORTS,
        kind="host",
        subject=Subject(ranks=ranks),
        message=f"{wording.ranks_text(ranks).capitalize()} {verb} not met the others at the store: {why}.",
        evidence=(*(_ref(sockets, rank) for rank in ranks[:3]), *(_ref(sockets, rank) for rank in others[:2])),
        victims=others,
        alternatives=(
            Alternative("firewall", "something between the hosts may drop its connection"),
            Alternative("missing-rank-at-init", "it may only be late"),
        ),
        next=(
            NextStep(
                "echo $MASTER_ADDR:$MASTER_PORT on every rank",
                "shows who looks elsewhere",
                ("rendezvous-endpoint", "firewall"),
                "none",
            ),
        ),
        fix=("Give all ranks the same MASTER_ADDR and MASTER_PORT, from one place.",),
    )


def _ref(sockets: dict[int, list[TcpSocket]], rank: int) -> Ref:
    """Its connection to the store, or what it has instead."""
    own = sorted(sockets[rank], key=lambda s: (s.state != "ESTAB", s.state != "LISTEN"))
    return own[0].ref
