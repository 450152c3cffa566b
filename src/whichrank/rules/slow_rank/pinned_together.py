"""Several processes are bound to the same CPU, or one to far fewer than the others.

## What it finds
Three processes or more that `taskset -cp` or OpenMP (`KMP_AFFINITY=verbose`) shows on one CPU, the same for all; or
two, where another process of the list may use many. A task that `srun --cpu-bind=verbose` binds to at most half of the
CPUs that every other task has.

## Why it happens
`KMP_AFFINITY`, `GOMP_CPU_AFFINITY` or `OMP_PROC_BIND` binds the first thread of every process to the first CPU, and
what the process starts later inherits that; a launcher or a container gives every rank the same CPU.

## How it decides
By the lists of these tools: the same single CPU for these processes, or the bits of the masks.

## Example
`pid 1993574's current affinity list: 0`, for every worker.

## Fix
Unset the variable (or bind each rank to CPUs of its own: `numactl`, `--cpu-bind`, `OMP_PLACES`), and look again with
`taskset -cp PID`.

## Limits
Whether these are the ranks of the job, the lists do not say.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.statements import Statement

CODE = "SLOW206"
CAUSE = "cpu-starved"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="slow",
    severity="warning",
    fix=(
        "Unset KMP_AFFINITY, GOMP_CPU_AFFINITY and OMP_PROC_BIND.",
        "Or give each rank CPUs of its own: numactl, srun --cpu-bind, OMP_PLACES.",
    ),
    alternatives=(("wrong-environment", "a variable of OpenMP binds them"),),
    next=(NextStep("taskset -cp PID", "shows the CPUs that a process may use", (CAUSE,), "none"),),
)
_MANY = 3


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    if fewer := _with_far_fewer(case):
        return [fewer]
    bound: dict[str, dict[str, Statement]] = defaultdict(dict)
    others_have_more = False
    for seen in known_messages.seen(case, "taskset-affinity", "openmp-bound"):
        cpus = seen.group("cpus").strip("{}")
        if cpus.isdigit():
            bound[cpus].setdefault(seen.group("pid"), seen.sign)
        else:
            others_have_more = True
    cpu, processes = max(bound.items(), key=lambda item: len(item[1]), default=("", {}))
    if len(processes) < (2 if others_have_more else _MANY):
        return []
    message = f"{len(processes)} processes or more are bound to CPU {cpu}, the same for all."
    return [building.found(case, _CLAIM, list(processes.values()), message, Grade.SUPPORTS)]


def _with_far_fewer(case: Case) -> Finding | None:
    """The task that Slurm gave far fewer CPUs than all others have alike; a task is a rank where lines say so."""
    told = {int(s.group("task")): s for s in known_messages.seen(case, "srun-cpu-mask")}
    counts = {task: int(s.group("mask"), 16).bit_count() for task, s in told.items()}
    usual, times = Counter(counts.values()).most_common(1)[0] if counts else (0, 0)
    odd = [task for task, count in counts.items() if 2 * count <= usual]
    if times < _MANY or len(odd) != 1 or len(odd) + times != len(counts):
        return None
    (task,) = odd
    host, ranks = told[task].group("host"), (task,) if len(counts) == case.world else ()
    message = f"Task {task} on {host} is bound to {counts[task]} CPUs, every other one to {usual}."
    signs = [told[task].sign, next(s.sign for other, s in told.items() if other != task)]
    found = building.found(case, _CLAIM, signs, message, Grade.SUPPORTS, ranks)
    return building.about(found, Subject(ranks=ranks, hosts=(host,)))
