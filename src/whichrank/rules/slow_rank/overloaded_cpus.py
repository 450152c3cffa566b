"""More threads want to run than the host has CPUs.

## What it finds
A host whose load average is far above the number of its CPUs.

## Why it happens
Every rank and every data-loader worker starts a pool of OpenMP or BLAS threads as large as the machine; or other jobs
run on the same host.

## How it decides
By the load average that `uptime` or `top` prints: more than twice the CPUs where a line says how many there are
(`CPU(s): 80`, `96 CPU cores`), else more than any usual host has.

## Example
`load average: 604.12, 588.30, 571.07` on 80 CPUs

## Fix
Set OMP_NUM_THREADS to the CPUs of a rank divided by its workers plus one, and MKL_NUM_THREADS alike; use fewer workers.

## Limits
Threads that wait for a disk count in the load too.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements

CODE = "SLOW208"
CAUSE = "cpu-starved"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="slow",
    severity="warning",
    fix=(
        "Set OMP_NUM_THREADS and MKL_NUM_THREADS: the CPUs of a rank over its workers plus one.",
        "Use fewer data-loader workers, or ask for more CPUs.",
    ),
    alternatives=(
        ("input-bound", "loading may be what needs the CPUs"),
        ("storage-stall", "threads that wait for a disk count too"),
    ),
    next=(NextStep("ps -eLf | wc -l; nproc", "shows threads and CPUs of the host", (CAUSE,), "none"),),
)
_TIMES, _MOST_CPUS = 2.0, 512.0


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    loads = known_messages.seen(case, "load-average")
    highest = max(loads, key=lambda s: float(s.group("load")), default=None)
    if highest is None or case.stands_still:
        return []
    counts = known_messages.seen(case, "cpu-count")
    cpus = max((int(s.group("cpus") or s.group("said")) for s in counts), default=None)
    load = float(highest.group("load"))
    if load <= (_TIMES * cpus if cpus else _MOST_CPUS):
        return []
    of = f" on {cpus} CPUs" if cpus else ""
    message = f"{load:.0f} threads are runnable{of}: the CPUs are oversubscribed."
    signs = [highest.sign, *(s.sign for s in counts[:1])]
    return [building.found(case, _CLAIM, signs, message, Grade.SUPPORTS if cpus else Grade.HINTS)]
