"""A rank's process exists but does not run: stopped, or in uninterruptible sleep.

## What it finds
Processes of ranks whose state is T (stopped), or D (uninterruptible) in every look that was taken.

## Why it happens
SIGSTOP (a debugger, Ctrl-Z, a pre-emption), a frozen cgroup, a kernel call that does not come back.

## How it decides
By ps or /proc/PID/status. T of a rank's process is enough; t is a debugger at work and is passed over. D is normal for
moments: it counts where all of at least two looks show it, or where the kernel function it waits in belongs to a file
system. Without a known rank a stopped process counts where its command is also the others'.

## Example
`State: T (stopped)` of pid 7194, rank 5

## Fix
`kill -CONT PID`, thaw the cgroup, and find who stopped it; for D look at the storage.

## Limits
One look is one moment.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.host import HostProcess, HostState
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import kernel_events

CODE = "HOST155"
CAUSE = "rank-frozen"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "Let it go on: kill -CONT PID, or thaw its cgroup; then find who stopped it.",
        "For uninterruptible sleep look at the storage and the kernel log of that host.",
    ),
    alternatives=(("storage-stall", "uninterruptible sleep is most often storage"),),
    next=(
        NextStep(
            "grep -E 'State|Pid' /proc/PID/status; cat /proc/PID/wchan",
            "shows whether it still is",
            ("rank-frozen",),
            "none",
        ),
    ),
)
_STORAGE = (
    "nfs",
    "rpc_",
    "fuse",
    "ceph",
    "lustre",
    "ll_",
    "xfs",
    "ext4",
    "jbd2",
    "io_schedule",
    "wait_on_page",
    "folio_wait",
)
StoppedProcess = tuple[HostState, HostProcess]


def judge(case: Case) -> list[Finding] | NotEvaluated:
    seen = [(state, process) for state in case.hardware.hosts for process in state.processes]
    if not seen:
        return NotEvaluated("states of the processes (ps, /proc/PID/status)")
    stopped = [(s, p) for s, p in seen if p.state == "T" and _is_rank(case, s, p, seen)]
    if stopped:
        return [_finding(case, stopped, "is stopped", Grade.PROVES)]
    asleep = _asleep(case, seen)
    return [_finding(case, asleep, "does not leave uninterruptible sleep", Grade.SUPPORTS)] if asleep else []


def _is_rank(case: Case, state: HostState, process: HostProcess, seen: list[StoppedProcess]) -> bool:
    if case.hardware.rank_of(process.pid, state.host) is not None:
        return True
    words = process.command.split()
    name = words[0].rsplit("/", 1)[-1] if words else ""
    alike = Counter(p.command for _, p in seen)
    several = alike[process.command] > 1 or (not case.people.by_rank and len(seen) == 1)
    return kernel_events.is_trainer(name) and several


def _asleep(case: Case, seen: list[StoppedProcess]) -> list[StoppedProcess]:
    looks: dict[tuple[str | None, int], list[StoppedProcess]] = {}
    for state, process in seen:
        if case.hardware.rank_of(process.pid, state.host) is not None:
            looks.setdefault((state.host, process.pid), []).append((state, process))
    for times in looks.values():
        always = all(p.state == "D" for _, p in times)
        on_storage = any(p.waits_in.startswith(_STORAGE) for _, p in times)
        if always and (len(times) > 1 or on_storage) and (case.stands_still or not kernel_events.has_job(case)):
            return times
    return []


def _finding(case: Case, seen: list[StoppedProcess], what: str, sure: Grade) -> Finding:
    state, process = seen[0]
    ranks = tuple(sorted({r for s, p in seen if (r := case.hardware.rank_of(p.pid, s.host)) is not None}))
    who = (
        hardware_findings.names(case, ranks)
        if ranks
        else f"Process {process.pid}{' on ' + state.host if state.host else ''}"
    )
    refs = [
        replace(s.ref, locator=f"line {p.line}", quote=f"pid {p.pid} state {p.state} {p.waits_in} {p.command}"[:200])
        for s, p in seen[:3]
    ]
    hosts = tuple(sorted({s.host for s, _ in seen if s.host}))
    if len(ranks) > 1:
        several = what.replace("is ", "are ", 1) if what.startswith("is ") else what.replace("does not", "do not")
        message = f"{who} {several}: their processes exist but do not run."
    else:
        message = f"{who} {what}: it exists but does not run."
    weight = kernel_events.state_weight(case)
    if weight.severity == "info":  # a stopped rank is a fault whatever the logs say so far
        weight = kernel_events.Weight("warning")
    subject = Subject(ranks=ranks, hosts=hosts)
    return hardware_findings.found(
        case, _CLAIM, refs, message, sure if ranks else sure.lowered(), weight=weight, subject=subject
    )
