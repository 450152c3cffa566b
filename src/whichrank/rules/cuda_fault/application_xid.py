"""The driver reports a fault that the program itself caused (Xid).

## What it finds
Xids of a program's own memory or instruction faults during the run: 13, 31, 69, copy-engine faults, and 43 alone.

## Why it happens
A kernel reads or writes outside its memory, runs an illegal instruction, or uses memory that a peer has freed. The
process dies; its peers then wait or lose their connection.

## How it decides
By the table of Xids, within the time of the run. The rank is the one with that process or on that GPU. The GPU is not
to blame: an Xid of its hardware on the same GPU just before turns this into a consequence. It is less sure where a
peer refused an access (137) while the NVLinks of that GPU report errors, even such that are not fatal, and where the
GPU reports faults of three processes or more: then the hardware is offered too. Where the log
has only an Xid 45 "caused by previous Xid 31", that one counts, with less confidence.

## Example
`NVRM: Xid (PCI:0000:b5:00): 31, pid=7194, name=python, Ch 00000008, intr 00000000. MMU Fault: …`

## Fix
Find the kernel: compute-sanitizer, `CUDA_LAUNCH_BLOCKING=1`, TORCH_USE_CUDA_DSA. The same Xid on the same GPU with
different programs asks for the vendor's diagnostics.

## Limits
The driver's pid is the host's; a container may know the process by another number.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from whichrank.facts.hardware import xids
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.events.processes import CudaError, Traceback
from whichrank.records.hardware import KernelEvent
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import deaths, kernel_events

CODE = "CUDA160"
CAUSE = "xid-application-fault"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Find the faulting kernel: compute-sanitizer, or CUDA_LAUNCH_BLOCKING=1 for the line that launches it.",
        "Only if the same GPU reports it under different programs: run the vendor's diagnostics on it.",
    ),
    alternatives=(("cuda-illegal-access", "the same fault as CUDA tells it to the program"),),
    next=(
        NextStep(
            "compute-sanitizer --tool memcheck python …",
            "names the kernel and the address",
            ("xid-application-fault", "cuda-illegal-access"),
            "load",
        ),
    ),
)
_NVLINK = (
    ("nvlink-fault", "a link of the same GPU reports errors"),
    ("fabric-manager", "a fabric that was not set up refuses accesses of peers too"),
)
_DEVICE = (
    ("xid-gpu-fault", "the same GPU faults under one process after the other"),
    ("cuda-illegal-access", "the same fault as CUDA tells it to the program"),
)
_STOPPED, _REFUSED = 43, 137
"""Xids: a channel that was stopped for the program's fault, an access over NVLink that the peer refused."""
_MANY = 3
"""Processes whose fault on one GPU is not held against the program alone."""
_NOT_JOBS = ("nvidia-smi", "xorg", "gnome", "dcgm", "nv-hostengine", "nvidia-persist")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.hardware.kernel:
        return hardware_findings.NO_KERNEL_LOG
    told = [e for e in kernel_events.xid_events(case, "application") if not e.process.lower().startswith(_NOT_JOBS)]
    told = [event for event in told if _of_this_job(case, event)]
    events, weight = kernel_events.counting(case, told)
    events = kernel_events.first_events(events)
    if not events:
        return []
    first = events[0]
    fact = xids.xid(first.code or 0)
    subject = hardware_findings.subject_of(case, events)
    # Ranks may share a GPU: the driver's pid says which program it was.
    by_pid = sorted({r for e in events if (r := case.hardware.rank_of(e.pid, e.host)) is not None})
    if by_pid:
        subject = replace(subject, ranks=tuple(by_pid))
    beside = _beside_nvlink(case, first)
    claim, sure, verdict = _reading(first, told, beside)
    name = f"process {first.pid}" if first.pid else "a process"
    who = hardware_findings.names(case, subject.ranks) if subject.ranks else f"{name[0].upper()}{name[1:]}"
    where = f" on {first.host}" if first.host and not subject.ranks else ""
    what = fact.name if fact else "a fault of the program"
    message = (
        f"{who}{where} caused Xid {first.code} ({what}) on the GPU at {first.device}{verdict}."
        f"{hardware_findings.aside(case, events, weight)}"
    )
    return [
        hardware_findings.found(
            case, claim, [e.ref for e in [*events[:3], *beside[:2]]], message, sure, weight=weight,
            subject=Subject(ranks=subject.ranks, hosts=() if subject.ranks else subject.hosts),
            onset_ns=kernel_events.onset(events),
        )
    ]  # fmt: skip


def _of_this_job(case: Case, event: KernelEvent) -> bool:
    """Whether the fault can be the job's, and not what a rank met as it was ended, nor another job on that GPU."""
    rank = case.hardware.rank_of(event.pid, event.host)
    if rank is not None:
        return not case.first_to_fail or rank in case.first_to_fail
    # A program learns of its fault: its next call of CUDA fails. With MPS the driver names the server of all clients.
    there = case.people.ranks_on(event.host) if event.host and event.pid is not None else ()
    strange = bool(there) and all(case.people.by_rank[r].pid for r in there)
    if not strange or case.events(CudaError):
        return True
    # A container knows its processes by other numbers.
    return kernel_events.is_trainer(event.process) and not _failed_before(case, event)


def _failed_before(case: Case, event: KernelEvent) -> bool:
    """Whether a rank had raised an exception by then that is not of its GPU, or had died: others are ended after it."""
    raised = [e.time_ns for e in case.events(Traceback) if e.time_ns is not None and not e.ignored]
    died = [d.sign.time_ns for d in deaths.deaths(case) if d.sign.time_ns is not None and not d.by_launcher]
    return event.time_ns is not None and any(time < event.time_ns for time in (*raised, *died))


def _reading(
    first: KernelEvent, told: Sequence[KernelEvent], beside: Sequence[KernelEvent]
) -> tuple[Claim, Grade, str]:
    """What is claimed, how surely, and how the sentence ends."""
    sure = Grade.SUPPORTS if first.code == _STOPPED else Grade.PROVES
    if beside:
        return replace(_CLAIM, alternatives=_NVLINK), Grade.HINTS, ", beside an error of its NVLinks"
    if len({e.pid for e in told if e.pid is not None and kernel_events.same_gpu(e, first)}) >= _MANY:
        return replace(_CLAIM, alternatives=_DEVICE), min(sure, Grade.SUPPORTS), ", as did other processes there"
    return _CLAIM, sure, ": the program's fault, not the GPU's"


def _beside_nvlink(case: Case, event: KernelEvent) -> list[KernelEvent]:
    """Errors of the links of the same GPU, where a peer refused an access: it may be their doing."""
    if event.code != _REFUSED:
        return []
    others = [e for e in case.hardware.of_kind("xid") if kernel_events.same_gpu(e, event)]
    then = case.hardware.when(event)
    return [e for e in others if e.code is not None and xids.is_nvlink(e.code) and case.hardware.when(e) == then]
