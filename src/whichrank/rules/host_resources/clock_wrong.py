"""The clock of a host is wrong, and the others take its agent for dead.

## What it finds
A host whose time service says that its clock is seconds off, or that it can't be set, in a job that failed; above all
one whose agent the rendezvous drops because its heartbeats look too old.

## Why it happens
The rendezvous compares the times that agents write with its own clock: a heartbeat of an agent whose clock is behind
looks old at once. Certificates and leases fail in the same way.

## How it decides
The words of chronyd, ntpd, `chronyc tracking` or `timedatectl` about a host. An offset of a second or more counts, and
so does, less, a clock that nothing sets. Where the rendezvous dropped agents of such hosts and of no others, an offset
proves it, and so does one of the only host that drops the others. So does one of 15 s or more, after which torch takes
an agent for dead, where agents met in different rounds. Elsewhere an offset is a hint, if the clock of another host is
said to be right. Without a word of a time service, an agent that is dropped three times or more for its heartbeats and
comes back each time lives, and its clock is behind.

## Example
`chronyd[811]: System clock wrong by 412.118843 seconds` on node3, and `the node(s) 'node3_2870_0' have been removed
from the rendezvous 'exp44' since they had no heartbeat` in the log of node1.

## Fix
Start the time service on all hosts and check it: chronyc tracking.

## Limits
A clock that was set right before the job began is mentioned by the same words.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.events.startup import RendezvousError
from whichrank.records.host import TimeService
from whichrank.timeline.case import Case
from whichrank.timeline.hardware import same_host
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state import deaths, kernel_events, statements

CODE = "HOST158"
CAUSE = "clock-skew"

_PROBE = NextStep("chronyc tracking", "tells how far the clock of a host is off", (CAUSE,), "none")
_DEAD_S = 15.0
"""torch drops an agent whose last heartbeat looks older than three intervals of 5 s (dynamic_rendezvous.py)."""
_CONFUSED = "mismatch in rank count from procs"
"""What NCCL says where agents have met in different rounds."""
_WRONG_S = 1.0
"""chronyd mentions an offset from one second on (logchange); agents count heartbeats in seconds."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    told = case.hardware.time_services
    again = deaths.dropped_again(case)
    if not told and not again:
        return NotEvaluated("what the time service of the hosts says (chronyc tracking, timedatectl, its log)")
    if len(again) == 1 and not any(one.host and short_name(one.host) in again for one in told):
        return [_looks_dead(*again.popitem())]
    wrong = [one for one in told if one.host and (one.held is False or (one.wrong_s or 0.0) >= _WRONG_S)]
    hosts = sorted({short_name(one.host) for one in wrong if one.host})
    dropped = {short_name(host) for event in case.events(RendezvousError) for host in event.dropped}
    droppers = {short_name(event.host) for event in case.events(RendezvousError) if event.dropped and event.host}
    meant = [host for host in hosts if host in dropped]
    clearly = sorted({short_name(one.host) for one in wrong if one.host and (one.wrong_s or 0.0) >= _WRONG_S})
    if meant and dropped <= set(hosts):
        return [_finding(case, wrong, tuple(meant), Grade.PROVES if set(meant) <= set(clearly) else Grade.SUPPORTS)]
    if clearly and dropped and droppers == set(clearly):
        return [_finding(case, wrong, tuple(clearly), Grade.PROVES)]
    others = {short_name(one.host) for one in told if one.host} - set(hosts)
    if not clearly or not others or not kernel_events.failed(case):
        return []
    dead = any((one.wrong_s or 0.0) >= _DEAD_S for one in wrong)
    at_start = not any(len(progress) > 1 for progress in case.progress)
    confused = dead and at_start and (case.events(RendezvousError) or statements.said_by_nccl(case, _CONFUSED))
    return [_finding(case, wrong, tuple(clearly), Grade.PROVES if confused else Grade.HINTS)]


def _looks_dead(host: str, dropped: list[RendezvousError]) -> Finding:
    """An agent that lives, and whose heartbeats look too old to all others."""
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="crash",
        severity="error",
        grade=Grade.SUPPORTS,
        subject=Subject(hosts=(host,)),
        message=f"The rendezvous drops the agent of {host} for its heartbeats {len(dropped)} times, and it comes back "
        "each time: its clock is behind that of the others.",
        evidence=tuple(event.ref for event in dropped[:3]),
        fix=fix(CAUSE),
        alternatives=(Alternative("host-lost", "its agent may be held up for seconds again and again"),),
        next=(_PROBE,),
    )


def _finding(case: Case, wrong: list[TimeService], hosts: tuple[str, ...], grade: Grade) -> Finding:
    mine = [one for one in wrong if any(same_host(one.host, host) for host in hosts)]
    most = max((one.wrong_s for one in mine if one.wrong_s is not None), default=None)
    how = f"is {most:,.0f} s wrong" if most is not None and most >= _WRONG_S else "is not kept right"
    missed = [e for e in case.events(RendezvousError) if e.dropped] if grade > Grade.HINTS else []
    its = any(short_name(host) in hosts for event in missed for host in event.dropped)
    dropped, looks = ("its agent", "look") if its else ("the agents of the others", "look to it")
    then = f": the rendezvous drops {dropped}, whose heartbeats {looks} too old" if missed else ""
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="crash",
        severity="error",
        grade=grade,
        kind="host",
        subject=Subject(hosts=hosts),
        message=f"The clock of {', '.join(hosts)} {how}{then}.",
        evidence=tuple(one.ref for one in mine[:3]) + tuple(event.ref for event in missed[:2]),
        fix=fix(CAUSE),
        next=(_PROBE,),
    )
