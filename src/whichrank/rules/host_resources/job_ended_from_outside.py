"""The scheduler, a person or a node agent ended the job.

## What it finds
A time limit, a cancelled job, a pre-emption, or a signal that the launcher received and passed on.

## Why it happens
The run was longer than what was asked for, a person gave up (often because the job hung), or the machine was wanted
back.

## How it decides
The scheduler's own words, the signal that `whichrank run` received under a scheduler (with the job's time limit, where
that is known), or the elastic agent's `Received … death signal` or `closing signal SIGHUP` (after a failure it sends
SIGTERM). What ranks print after that (SIGTERM,
KeyboardInterrupt, lost connections) follows from it. Nobody is accused, unless only some hosts were told to end and
others failed: then those hosts and their ranks are named. So is a pod that was evicted, or the node whose agent evicted
it. A job that is ended because it hangs has another cause, and that one comes first; where nothing but the agent's
signal is told, and no times show that the job worked until then, it may have stood still. It did where its progress
had a pace and then stopped for many times the longest pause.

## Example
`*** JOB 4711 ON node7 CANCELLED AT 2026-02-11T02:36:11 DUE TO TIME LIMIT ***`

## Fix
Ask for more time, checkpoint more often, or handle the signal that announces the end.

## Limits
The agent does not say who sent the signal.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from whichrank.model.findings import Alternative, Finding, Grade, NotEvaluated, Subject
from whichrank.records.events.base import Event
from whichrank.records.events.launchers import ElasticSignal, JobEnded
from whichrank.records.events.processes import Traceback
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state import deaths, exceptions, outcome, statements
from whichrank.timeline.job_state.known_messages import of_cause, peers, seen
from whichrank.timeline.job_state.statements import Statement

CODE = "HOST104"
CAUSE = "job-ended-from-outside"

_CLAIM = Claim(
    CODE,
    CAUSE,
    severity="warning",
    fix=(
        "If the job was ended for its time or for others: ask for more time, or checkpoint before the announced end.",
        "If somebody ended it because it stood still, look for the hang: its last progress line tells when it began.",
    ),
)
_STOOD_STILL = Alternative("collective-stalled", "nobody says why it was ended: it may have stood still before")
_STALLED = Claim(
    CODE,
    _STOOD_STILL.cause,
    category="hang",
    fix=("Look for the hang: the last words of each rank tell which of them went another way.",),
    alternatives=((CAUSE, "it may have been ended for another reason"),),
)
_HANG_UP = 1
_KEEP_RUNNING = (
    "Its terminal or ssh session ended: start it in tmux or screen, with nohup and &, or as a job of a scheduler.",
)
_TIMES, _PAUSE = 4, 2
"""Of progress that tell its pace, and how many times the longest pause it may have been silent."""
_STALL, _MINUTE_NS = 10, 60 * 10**9
"""So many times the longest pause, and so many minutes, are no pause."""
_NO_REASON = ("", "cancelled")
_EVICTED = "k8s-evicted"
_LAUNCHERS = (
    "torch/distributed/run",
    "torch/distributed/launcher",
    "torch/distributed/elastic",
    "torchrun",
    "accelerate",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    ends = [e for e in deaths.ended_from_outside(case) if "NODE FAIL" not in _reason(e).upper()]
    if len(ends) < len(deaths.ended_from_outside(case)):  # what came without a reason came for that one
        ends = [e for e in ends if _reason(e)]
    ends = ends or [e for e in case.events(Traceback) if _interrupted(e)]
    if not ends:
        return _told(case)
    signs = statements.first_to_fail([statements.statement(case, event) for event in ends])
    found = building.found(case, _CLAIM, signs, f"The job was ended from outside: {_how(ends)}.", Grade.PROVES)
    found = _of_some_hosts(case, found, signs)
    if all(isinstance(e, ElasticSignal) and e.signal_number == _HANG_UP for e in ends):
        return [replace(found, fix=_KEEP_RUNNING)]
    untold = all(isinstance(e, ElasticSignal) or _reason(e).lower() in _NO_REASON for e in ends)
    if found.subject.hosts or not untold or _at_work_until(case, signs):
        return [found]
    silent = min(_silences(case, signs), default=None)
    if silent is not None and silent[0] >= max(_STALL * silent[1], _STALL * _MINUTE_NS):
        message = f"The job had made no progress for {silent[0] // _MINUTE_NS} minutes when it was ended from outside."
        return [building.found(case, _STALLED, signs, message, Grade.HINTS)]
    if not all(isinstance(e, ElasticSignal) for e in ends):
        return [found]
    return [replace(found, grade=Grade.HINTS, alternatives=(_STOOD_STILL,))]


def _at_work_until(case: Case, signs: list[Statement]) -> bool:
    """Whether the job still made progress when it was ended: somebody may also end one that stands still."""
    return any(silent <= _PAUSE * longest for silent, longest in _silences(case, signs))


def _silences(case: Case, signs: list[Statement]) -> Iterator[tuple[int, int]]:
    """By output with a pace: how long before the end its last progress was, and its longest pause before that."""
    ended = min((sign.time_ns for sign in signs if sign.time_ns is not None), default=0)
    for progress in case.progress:
        times = np.unique(progress.time_ns[(progress.time_ns > 0) & (progress.time_ns <= ended)])
        if len(times) >= _TIMES:
            yield int(ended - times[-1]), int(np.diff(times).max())


def _of_some_hosts(case: Case, finding: Finding, signs: list[Statement]) -> Finding:
    """The finding about the hosts that were told to end, where what failed on the others came of that."""
    hosts = {short_name(sign.host) if sign.host else "" for sign in signs}
    elsewhere = {short_name(e.host) for e in outcome.failures(case) if e.host and e.host != "localhost"} - hosts
    if "" in hosts or not elsewhere:
        return finding
    ranks = tuple(sorted({rank for host in hosts for rank in case.people.ranks_on(host)}))
    others = tuple(rank for rank in range(case.world) if rank not in ranks) if ranks else ()
    subject = Subject(ranks=ranks, hosts=_with_nodes(case, hosts))
    # What began before may be why somebody ended these.
    severity = "error" if _first(case, hosts, signs) else finding.severity
    return replace(finding, subject=subject, victims=others, severity=severity)


def _first(case: Case, hosts: set[str], signs: list[Statement]) -> bool:
    """Whether only these hosts were told to end, before any other rank failed or began the wait that timed out."""
    if any(not e.host or short_name(e.host) not in hosts for e in deaths.ended_from_outside(case)):
        return False
    told = [sign.time_ns for sign in signs]
    others = [e for e in outcome.failures(case) if not e.host or short_name(e.host) not in hosts]
    began = [e.time_ns - e.waited_ms * 10**6 for e in others if e.time_ns is not None]
    return bool(began) and all(time is not None and time < min(began) for time in told)


def _with_nodes(case: Case, hosts: set[str]) -> tuple[str, ...]:
    """The hosts, and the nodes of those that are pods which had to go because their node ran short of something."""
    short = {short_name(pod) for s in seen(case, _EVICTED) if s.group("what") for pod in peers([s])}
    nodes = {node for node, pods in case.people.pods.items() if pods & short & set(map(short_name, hosts))}
    return tuple(sorted(hosts | nodes))


def _told(case: Case) -> list[Finding]:
    """The same in the words of a scheduler that no reader knows as such."""
    told = [s for s in of_cause(case, CAUSE, ("root",)) if "NODE FAIL" not in s.sign.text.upper()]
    if not told:
        return []
    signs = statements.first_to_fail([s.sign for s in told])
    message = f"The job was ended from outside: {building.words(next(s for s in told if s.sign is signs[0]))}."
    finding = building.found(case, _CLAIM, signs, message, Grade.PROVES)
    meant = [s for s in told if s.signature.who == "host" and s.sign in signs]
    # What the agent of a node says it says of a pod, or of this node.
    hosts = {*peers(meant)} or {s.sign.host for s in meant if s.sign.host}
    finding = replace(finding, subject=Subject(hosts=_with_nodes(case, hosts - {"localhost"})))
    return [_short_of_something(case, finding) if hosts and all(s.signature.id == _EVICTED for s in told) else finding]


def _short_of_something(case: Case, finding: Finding) -> Finding:
    """The finding about pods whose node ran short, which no hang of the job brings about: the others lost them."""
    evicted = seen(case, _EVICTED)
    pods = {short_name(pod) for pod in peers(evicted)}
    ranks = tuple(sorted({rank for pod in pods for rank in case.people.ranks_on(pod)}))
    if not all(s.group("what") for s in evicted) or len(ranks) >= case.world > 0:
        return finding
    others = tuple(rank for rank in range(case.world) if rank not in ranks) if ranks else ()
    return replace(finding, subject=replace(finding.subject, ranks=ranks), victims=others, severity="error")


def _interrupted(event: Event) -> bool:
    """A launcher that was interrupted at the terminal."""
    ended = exceptions.nature(event) == "ended" and exceptions.short_type(event) != "SystemExit"
    return ended and event.rank is None and any(part in f.file for f in event.frames for part in _LAUNCHERS)


def _reason(event: Event) -> str:
    return event.reason if isinstance(event, JobEnded) else ""


def _how(ends: list[Event]) -> str:
    event = next((e for e in ends if _reason(e)), ends[0])
    if isinstance(event, JobEnded):
        reason, heard = event.reason.lower(), event.signal
        sent = f"{event.by} sent {heard}" if heard else "the scheduler cancelled it"
        return f"the scheduler says '{reason}'" if reason else sent
    if not isinstance(event, ElasticSignal):
        return "the launcher was interrupted"
    number = event.signal_number
    if not number:
        return "the launcher received a signal"
    return f"the launcher received {deaths.SIGNALS.get(number, f'signal {number}')}"
