"""The kernel says that a process hangs on storage.

## What it finds
`task … blocked for more than 120 seconds` for a process of the job, file servers that do not answer and did not come
back, disks and file systems with I/O errors, during the run.

## Why it happens
A network file system (NFS, Lustre, FUSE) that hangs, a failing disk. The process is in uninterruptible sleep: it does
not reach its collective and does not die either.

## How it decides
A blocked task counts where its pid is a rank's or its name is one of training jobs. A silent file server counts where
it has not answered again by the end of the log and the job hangs or failed.

## Example
`INFO: task python:7194 blocked for more than 120 seconds.` with `nfs: server filer1 not responding, still trying`

## Fix
Look at the mount and the file server (or the disk) before restarting the job; a reboot may be needed to free the
process.

## Limits
The kernel reports a blocked task ten times at most (hung_task_warnings), then no more.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.hardware import KernelEvent
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import kernel_events

CODE = "HOST154"
CAUSE = "storage-stall"

_KERNELS_OWN = ("kworker", "jbd2", "khugepaged", "kswapd", "khungtaskd", "systemd", "md", "xfsaild", "dockerd")
_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "Look at the mount and the file server (or the disk) of that host before restarting.",
        "A process in uninterruptible sleep does not die: the host may need a reboot.",
    ),
    alternatives=(("rank-frozen", "the task may be blocked on something else than storage"),),
    next=(
        NextStep(
            "ps -eo pid,stat,wchan:32,cmd | grep ' D'; df -h",
            "shows who is blocked and in which part of the kernel",
            ("storage-stall", "rank-frozen"),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.hardware.kernel:
        return hardware_findings.NO_KERNEL_LOG
    blocked = [e for e in case.hardware.of_kind("hung_task") if _of_job(case, e)] or _of_somebody(case)
    silent = _silent(case)
    events, weight = kernel_events.counting(case, blocked or silent or _broken(case))
    if not events:
        return []
    first = events[0]
    rank = case.hardware.rank_of(first.pid, first.host)
    where = f" on {first.host}" if first.host else ""
    server = silent[0].text("server") if silent else ""
    if first.kind == "hung_task":
        who = (
            hardware_findings.names(case, (rank,)) if rank is not None else f"{first.process} (pid {first.pid}){where}"
        )
        message = f"{who} hangs in the kernel for more than {first.number('seconds')} s"
        message += f"; the file server {server} does not answer." if server else "."
        sure = Grade.PROVES if rank is not None else Grade.SUPPORTS if _of_job(case, first) else Grade.HINTS
    elif first.kind == "server_silent":
        message, sure = f"The file server {server} does not answer{where}.", Grade.SUPPORTS
    else:
        message, sure = f"{first.device or 'A disk'}{where} reports errors: {first.text('what')}.", Grade.HINTS
    subject = Subject(ranks=(rank,) if rank is not None else (), hosts=(first.host,) if first.host else ())
    refs = [e.ref for e in events[:2]] + [e.ref for e in silent[:2]]
    return [
        hardware_findings.found(
            case, _CLAIM, refs, message + hardware_findings.aside(case, events, weight), sure, weight=weight,
            subject=subject, onset_ns=kernel_events.onset(events),
        )
    ]  # fmt: skip


def _of_job(case: Case, event: KernelEvent) -> bool:
    return case.hardware.rank_of(event.pid, event.host) is not None or kernel_events.is_trainer(event.process)


def _of_somebody(case: Case) -> list[KernelEvent]:
    """Programs by whatever name, where nothing at hand tells of a job."""
    if kernel_events.knows_a_job(case):
        return []
    return [e for e in case.hardware.of_kind("hung_task") if not e.process.startswith(_KERNELS_OWN)]


def _silent(case: Case) -> list[KernelEvent]:
    """Servers that did not answer again."""
    lasting: dict[tuple[object, str], list[KernelEvent]] = {}
    for event in case.hardware.of_kind("server_silent", "server_back"):
        key = (event.host, event.text("server"))
        if event.kind == "server_back":
            lasting.pop(key, None)
        else:
            lasting.setdefault(key, []).append(event)
    return [event for events in lasting.values() for event in events]


def _broken(case: Case) -> list[KernelEvent]:
    return [e for e in case.hardware.of_kind("io_error") if not e.device.startswith(("fd", "sr", "loop"))]
