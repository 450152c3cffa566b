"""The kernel saw a rank crash in native code.

## What it finds
`segfault at …` and `traps: … general protection` in the kernel log, of a process of the job.

## Why it happens
A fault in an extension or a library, mixed library versions, a damaged heap.

## How it decides
The pid in the line is a rank's, or the process is called as training jobs are and the job failed. The library that the
line names is told.

## Example
`python[4711]: segfault at 7f ip 00007f… error 4 in libnccl.so.2.21.5[7f…]`

## Fix
Get the stack: a core file in gdb, `PYTHONFAULTHANDLER=1`. Suspect the library that the line names, and what called it.

## Limits
Nothing is printed where the process handles the signal itself or where show_unhandled_signals is off.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import kernel_events

CODE = "CUDA161"
CAUSE = "rank-native-crash"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Find the place: open a core file in gdb (ulimit -c unlimited), or run with PYTHONFAULTHANDLER=1.",
        "Suspect the library that the kernel names, compiled extensions, and mixed versions.",
    ),
    next=(NextStep("coredumpctl gdb PID", "the native stack tells what called it", ("rank-native-crash",), "none"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.hardware.kernel:
        return hardware_findings.NO_KERNEL_LOG
    told = case.hardware.of_kind("segfault")
    of_rank = [e for e in told if case.hardware.rank_of(e.pid, e.host) is not None]
    likely = [e for e in told if kernel_events.is_trainer(e.process)]
    events, weight = kernel_events.counting(case, of_rank or likely)
    if not events:
        return []
    first = events[0]
    rank = case.hardware.rank_of(first.pid, first.host)
    who = hardware_findings.names(case, (rank,)) if rank is not None else f"{first.process} (pid {first.pid})"
    where = f" on {first.host}" if first.host and rank is None else ""
    library = f" in {first.text('library')}" if first.text("library") else ""
    message = f"{who}{where} crashed in native code{library}.{hardware_findings.aside(case, events, weight)}"
    subject = Subject(ranks=(rank,) if rank is not None else (), hosts=(first.host,) if first.host else ())
    return [
        hardware_findings.found(
            case, _CLAIM, [e.ref for e in events[:3]], message,
            Grade.PROVES if rank is not None else Grade.SUPPORTS, weight=weight,
            subject=subject, onset_ns=kernel_events.onset(events),
        )
    ]  # fmt: skip
