"""Host memory is exhausted.

## What it finds
A scheduler that saw the kernel's out-of-memory killer, or a process that could not get host memory.

## Why it happens
Every rank loads the whole checkpoint or data set, data-loader workers copy Python objects, a cache grows, pinned
buffers add up, or the container's limit is far below what the host has.

## How it decides
The scheduler's own words (`oom_kill event`, `task 5: Out Of Memory`), or an allocation that failed in the process
(`DefaultCPUAllocator`, `MemoryError`, `std::bad_alloc`, errno 12). A process that was killed on the host that the
scheduler names is the rank. SIGKILL alone is reported as a killed rank, with this cause among the alternatives, unless
the host had said before that nearly all of its memory was in use.

## Example
`slurmstepd: error: Detected 1 oom_kill event in StepId=71.0`, and task 5 was `Killed`.

## Limits
The kernel log says which process was chosen and how much it held.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.events.launchers import HostOutOfMemory
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import deaths, statements

CODE = "HOST102"
CAUSE = "host-out-of-memory"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
    blames="host",
    next=(
        NextStep(
            "dmesg -T | grep -iE 'out of memory|oom-kill|killed process'",
            "names the process that the kernel chose and how much it held",
            ("host-out-of-memory", "rank-killed"),
            "none",
        ),
    ),
)
_WORDS = ("DefaultCPUAllocator", "std::bad_alloc", "[Errno 12]", "MemoryError")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    killer = statements.of_kind(case, HostOutOfMemory)
    killer += [d.sign for d in deaths.out_of_memory(case)]
    killer += statements.beside(killer, statements.known(case, CAUSE))
    failed = [s for s in statements.said(case, *_WORDS) if "OutOfMemoryError" not in s.text and "ibv_" not in s.text]
    if not killer and not failed:
        return _short_of_memory(case)
    killed = deaths.killed(case) if killer else []
    signs = statements.first_to_fail([*killer, *failed, *killed])
    ranks = statements.ranks_of([*failed, *killed]) or (deaths.only_one_failed(case) if failed else ())
    what = "was killed for lack of host memory" if killer else "could not get host memory"
    message = f"{building.who(case, ranks, signs)} {what}{building.others(case, ranks)}."
    grade = Grade.PROVES if killer or statements.ranks_of(failed) else Grade.SUPPORTS
    return [building.found(case, _CLAIM, signs, message, grade, ranks)]


def _short_of_memory(case: Case) -> list[Finding]:
    """Processes that ended by SIGKILL on a host that had said that its memory was nearly used up."""
    killed, full = deaths.killed_when_memory_was_short(case)
    if not killed:
        return []
    signs = statements.first_to_fail(killed)
    ranks = statements.ranks_of(signs)
    message = f"{building.who(case, ranks, signs)} was killed when nearly all of the host's memory was in use"
    told = f"{message}{building.others(case, ranks)}."
    return [building.found(case, _CLAIM, [*signs, full[-1]], told, Grade.SUPPORTS, ranks)]
