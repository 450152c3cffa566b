"""A whole host stopped answering.

## What it finds
A scheduler that reports a failed node, an elastic agent whose heartbeat the others miss, or a node of which the
watchers of the other nodes no longer hear from it while ranks wait.

## Why it happens
A crash of the kernel, power, a lost network, a machine taken away.

## How it decides
The scheduler's `NODE FAILURE`, the rendezvous that removes a node without a heartbeat, or the record of
`whichrank run`: the connection to the node's watcher stayed open and nothing more came. A watcher that has only
ended closes its connection and is not counted. `whichrank collect` adds nodes that it could not reach, where exactly
their ranks are missing. Connections of ranks that send without an answer make it surer. Ranks
on that host are named where it is known which they are. The node that tells of a node failure is not the one that
failed: it is named only where no other is known. Slurm's controller and srun name the right one. Otherwise it is the
one host that trained with the others and reports no failure, while all others do.

## Example
`… the node(s) node7_1234_0 have been removed from the rendezvous 'job' since they had no heartbeat.`

## Fix
Drain the host, look at its kernel log and its management controller, and start again without it.

## Limits
An agent that was stopped or starved of CPU misses its heartbeat as well. Of two nodes that don't hear each other,
each takes the other for lost; the one whose own link is down is told by its interface.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.events.base import Event
from whichrank.records.events.communication import NcclError, PeerClosed
from whichrank.records.events.launchers import JobEnded, NodeSilent, ProcessExit
from whichrank.records.events.processes import Traceback
from whichrank.records.events.startup import RendezvousError
from whichrank.records.events.watchdog import WatchdogTimeout
from whichrank.rules import building, network_findings
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state import deaths, kernel_events, statements
from whichrank.timeline.job_state.known_messages import of_cause, peers
from whichrank.timeline.job_state.whose import hosts_spoken_of
from whichrank.timeline.network import paths

CODE = "HOST105"
CAUSE = "host-lost"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Drain that host and start again without it.",
        "Read its kernel log and its management controller's events: power, machine checks, a lost network.",
    ),
    blames="host",
    alternatives=(("rank-frozen", "an agent that was stopped misses its heartbeat too"),),
    next=(NextStep("ping HOST; ssh HOST uptime", "tells whether it is down or was restarted", ("host-lost",), "none"),),
)
_TELLS: tuple[type[Event], ...] = (JobEnded, NcclError, PeerClosed, ProcessExit, Traceback, WatchdogTimeout)
_UNHEARD = replace(
    _CLAIM, category="hang", alternatives=(("firewall", "a blocked path looks the same from the other hosts"),)
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    unheard = _unheard(case)
    if unheard is not None:
        return [unheard]
    failed = [e for e in case.events(JobEnded) if "NODE FAIL" in e.reason.upper()]
    living = deaths.dropped_again(case)
    silent = [e for e in case.events(RendezvousError) if {short_name(host) for host in e.dropped} - living.keys()]
    lost = failed or silent
    if not lost:
        return []
    # The one that tells of the end of a job is a node that answers, unless there is no other.
    named = peers(of_cause(case, CAUSE, ("root",))) if failed else ()
    told = {host for event in lost for host in _hosts(event)}
    alone = not failed or not hosts_spoken_of(case) - {short_name(host) for host in told}
    hosts = named or (tuple(sorted(told)) if alone else _broke_off(case))
    ranks = tuple(sorted({rank for host in hosts for rank in case.people.ranks_on(host)}))
    where = ", ".join(hosts) if hosts else "A host"
    how = "the scheduler reports a node failure" if failed else "its agent stopped sending heartbeats"
    signs = [statements.statement(case, event) for event in lost]
    finding = building.found(
        case, _CLAIM, signs, f"{where} stopped answering: {how}.", Grade.PROVES if failed else Grade.SUPPORTS, ranks
    )
    # Who tells that another node failed is on a node of its own.
    return [replace(finding, subject=replace(finding.subject, hosts=hosts, ranks=ranks))]


def _broke_off(case: Case) -> tuple[str, ...]:
    """The one host that trained with the others and says nothing of a failure, while all others do."""
    trained = {case.people.host_of(int(rank)) for progress in case.progress for rank in {*progress.rank.tolist()}}
    told = {short_name(event.host) for event in case.log_events if event.host and isinstance(event, _TELLS)}
    told |= {short_name(process.host) for process in case.nccl if process.host and process.warnings}
    silent = {short_name(host) for host in trained if host} - told
    return tuple(silent) if len(silent) == 1 and len(told) > 1 else ()


def _unheard(case: Case) -> Finding | None:
    """A node of which its fellows hear nothing, while ranks that can be looked at wait."""
    silent = case.events(NodeSilent)
    if not silent or not kernel_events.failed(case):
        return None
    flows = paths.stuck(case)
    if flows and paths.link_down(case, paths.scope_of(flows)) is not None:
        return None  # a host that can be looked at has lost its link: the others are not to blame
    if any(paths.moving(flow) for flow in case.connections.flows if not flow.target.seen):
        return None  # it still answers the ranks: only its watcher does not
    hosts = tuple(sorted({event.host for event in silent if event.host}))
    told = {rank for event in silent for rank in event.ranks}
    ranks = tuple(sorted(told | {r for r, p in case.people.by_rank.items() if p.host in hosts}))
    unreachable = [flow for flow in flows if not flow.target.seen]
    answers = any(event.how != "no answer" for event in silent)
    grade = Grade.PROVES if unreachable else Grade.HINTS if answers else Grade.SUPPORTS
    how = "its watcher no longer answers"
    if any(event.how == "unreachable" for event in silent):
        # A login that fails says less: the network for people may be another one.
        how, grade = "it can't be reached from here", Grade.PROVES if unreachable else Grade.HINTS
    message = f"{', '.join(hosts)} stopped answering: {how}, and the other ranks wait."
    finding = building.found(
        case, _UNHEARD, [statements.statement(case, event) for event in silent], message, grade, ranks
    )
    proof = (*finding.evidence, *network_findings.refs(unreachable))[:6]
    return replace(_with_hosts(finding, hosts), evidence=proof)


def _hosts(event: Event) -> list[str]:
    if isinstance(event, JobEnded):
        return [event.teller] if event.teller and "[" not in event.teller and "," not in event.teller else []
    return event.dropped if isinstance(event, RendezvousError) else []


def _with_hosts(finding: Finding, hosts: tuple[str, ...]) -> Finding:
    return replace(finding, subject=replace(finding.subject, hosts=hosts or finding.subject.hosts))
