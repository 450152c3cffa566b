"""The kernel's OOM killer killed a process of the job.

## What it finds
`Out of memory: Killed process` and its cgroup form in a host's kernel log, during the run.

## Why it happens
Every rank loads the whole checkpoint or data set, data-loader workers copy Python objects, a cache grows, or the
container's limit is far below what the host has.

## How it decides
The process that the kernel names is a rank's (by its pid), or is called as training jobs are and the job failed.
Others (a browser, an agent) are told as a remark; and so is a process that is not a rank, where stacks show that all
ranks live: it is another job's. What the killed process's peers report follows from it.

## Example
`Memory cgroup out of memory: Killed process 7194 (python) total-vm:…, anon-rss:212044288kB`

## Limits
The kernel's pid is the host's; a container may know the process by another number. A data-loader worker that is killed
takes its rank with it.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.events.launchers import ProcessExit
from whichrank.records.events.processes import DataloaderWorkerDied
from whichrank.records.hardware import KernelEvent
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import deaths, kernel_events
from whichrank.timeline.job_state.kernel_events import Weight

CODE = "HOST150"
CAUSE = "host-out-of-memory"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
    next=(
        NextStep(
            "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.events",
            "shows the limit that was reached",
            ("host-out-of-memory",),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.hardware.kernel:
        return hardware_findings.NO_KERNEL_LOG
    events, weight = kernel_events.counting(case, case.hardware.of_kind("oom_kill"))
    of_rank = [e for e in events if case.hardware.rank_of(e.pid, e.host) is not None]
    likely = [e for e in events if kernel_events.is_trainer(e.process) and not _of_another_job(case, e)]
    chosen = of_rank or likely or events
    if not chosen:
        return _victim_unknown(case)
    first = chosen[0]
    ranks = tuple(sorted({r for e in of_rank if (r := case.hardware.rank_of(e.pid, e.host)) is not None}))
    ranks = ranks or _killed_there(case, first)
    if not of_rank and not likely:
        weight = Weight("info", weight.less + 1)
    sure = Grade.PROVES if ranks else Grade.SUPPORTS
    message = f"{_who(case, ranks, first)} because memory ran out{_inside(first)}."
    message += hardware_findings.aside(case, chosen, weight)
    subject = Subject(ranks=ranks, hosts=(first.host,) if first.host else ())
    return [
        hardware_findings.found(
            case, _CLAIM, [e.ref for e in chosen[:4]], message, sure, weight=weight, subject=subject,
            onset_ns=kernel_events.onset(chosen),
        )
    ]  # fmt: skip


def _victim_unknown(case: Case) -> list[Finding]:
    """The log ends before it names whom the kernel killed. Where a job is known, that may have been anybody."""
    if kernel_events.knows_a_job(case):
        return []
    events, weight = kernel_events.counting(case, case.hardware.of_kind("oom_invoked"))
    if not events:
        return []
    where = f" on {events[0].host}" if events[0].host else ""
    message = f"Memory ran out{where} when {events[0].process} asked for more; the lines that name the victim are cut."
    subject = Subject(hosts=(events[0].host,) if events[0].host else ())
    refs = [e.ref for e in events[:2]]
    return [
        hardware_findings.found(
            case,
            _CLAIM,
            refs,
            message,
            Grade.SUPPORTS,
            weight=weight,
            subject=subject,
            onset_ns=kernel_events.onset(events),
        )
    ]


def _of_another_job(case: Case, event: KernelEvent) -> bool:
    """Every rank is known by its process and was seen alive or to end otherwise, and no worker of theirs was killed."""
    seen = {*case.stacks, *(e.rank for e in case.events(ProcessExit) if e.exitcode is not None)}
    spared = seen.issuperset(range(case.world)) and not deaths.killed(case) and not case.events(DataloaderWorkerDied)
    return spared and case.hardware.stranger(event.pid, event.host)


def _who(case: Case, ranks: tuple[int, ...], event: KernelEvent) -> str:
    size = event.number("anon_kb")
    held = f" ({event.process}, {size >> 20:,} GiB)" if size and size >> 20 else f" ({event.process})"
    where = f" on {event.host}" if event.host else ""
    if ranks:
        return f"The kernel killed {hardware_findings.names(case, ranks).lower()}{held}"
    return f"The kernel killed process {event.pid}{held}{where}"


def _inside(event: KernelEvent) -> str:
    return " within its container's limit" if event.text("scope") == "cgroup" else ""


def _killed_there(case: Case, event: KernelEvent) -> tuple[int, ...]:
    """The one rank that its launcher saw killed on that host: the pid may be of another namespace."""
    ranks = {
        s.rank
        for s in deaths.killed(case)
        if s.rank is not None and (event.host is None or s.host in (None, event.host))
    }
    return tuple(ranks) if len(ranks) == 1 and kernel_events.is_trainer(event.process) else ()
