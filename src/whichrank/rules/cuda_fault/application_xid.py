"""The driver reports a fault that the program itself caused (Xid).

## What it finds
Xids of a program's own memory or instruction faults during the run: 13, 31, 69, copy-engine faults, and 43 alone.

## Why it happens
A kernel reads or writes outside its memory, runs an illegal instruction, or uses memory that a peer has freed. The
process dies; its peers then wait or lose their connection.

## How it decides
By the table of Xids, within the time of the run. The rank is the one with that process or on that GPU. The GPU is not
to blame: an Xid of its hardware on the same GPU just before turns this into a consequence.

## Example
`NVRM: Xid (PCI:0000:b5:00): 31, pid=7194, name=python, Ch 00000008, intr 00000000. MMU Fault: …`

## Fix
Find the kernel: compute-sanitizer, `CUDA_LAUNCH_BLOCKING=1`, TORCH_USE_CUDA_DSA. The same Xid on the same GPU with
different programs asks for the vendor's diagnostics.

## Limits
The driver's pid is the host's; a container may know the process by another number.
"""

from __future__ import annotations

from dataclasses import replace

from whichrank.facts import xids
from whichrank.model.findings import Finding, NextStep, NotEvaluated, Subject
from whichrank.rules import hardware
from whichrank.rules.hardware import Claim
from whichrank.timeline.case import Case

CODE = "CUDA160"
CAUSE = "xid-application-fault"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Find the faulting kernel: compute-sanitizer, or CUDA_LAUNCH_BLOCKING=1 for the line that launches it.",
        "Only if the same GPU reports it under different programs: run the vendor's diagnostics on it.",
    ),
    alternatives=(("cuda-illegal-access", 0.1, "the same fault as CUDA tells it to the program"),),
    next=(
        NextStep(
            "compute-sanitizer --tool memcheck python …",
            "names the kernel and the address",
            ("xid-application-fault", "cuda-illegal-access"),
            "load",
        ),
    ),
)
_NOT_JOBS = ("nvidia-smi", "xorg", "gnome", "dcgm", "nv-hostengine", "nvidia-persist")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.hardware.kernel:
        return hardware.NO_KERNEL_LOG
    told = [e for e in hardware.xid_events(case, "application") if not e.process.lower().startswith(_NOT_JOBS)]
    events, weight = hardware.counting(case, told)
    events = hardware.first_events(events)
    if not events:
        return []
    first = events[0]
    fact = xids.xid(first.code or 0)
    subject = hardware.subject_of(case, events)
    # Ranks may share a GPU: the driver's pid says which program it was.
    by_pid = sorted({r for e in events if (r := case.hardware.rank_of(e.pid, e.host)) is not None})
    if by_pid:
        subject = replace(subject, ranks=tuple(by_pid))
    name = f"process {first.pid}" if first.pid else "a process"
    who = hardware.names(case, subject.ranks) if subject.ranks else f"{name[0].upper()}{name[1:]}"
    where = f" on {first.host}" if first.host and not subject.ranks else ""
    what = fact.name if fact else "a fault of the program"
    message = (
        f"{who}{where} caused Xid {first.code} ({what}) on the GPU at {first.device}:"
        f" the program's fault, not the GPU's.{hardware.aside(case, events, weight)}"
    )
    sure = 0.6 if first.code == 43 else 0.85
    return [
        hardware.found(
            case, _CLAIM, [e.ref for e in events], message, sure, weight=weight,
            subject=Subject(ranks=subject.ranks, hosts=() if subject.ranks else subject.hosts),
            onset_ns=hardware.onset(events),
        )
    ]  # fmt: skip
