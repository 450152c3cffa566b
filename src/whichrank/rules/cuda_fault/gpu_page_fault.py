"""The kernel saw a GPU of AMD touch memory that it must not.

## What it finds
Page faults of the GPU in the kernel log: `[gfxhub0] no-retry page fault` and `VM_L2_PROTECTION_FAULT_STATUS` of
amdgpu.

## Why it happens
A faulty kernel (custom, compiled or in a library), an index that no check covers, memory freed while a kernel or a
peer still uses it, more rarely the hardware.

## How it decides
The driver tells the GPU, and mostly the process, in a line of its own. Faults of the driver itself (process 0) and of
programs that are no training jobs are left out. A rank is named only by its process.

## Example
`amdgpu 0000:26:00.0: amdgpu: VM_L2_PROTECTION_FAULT_STATUS:0x00341051`

## Fix
Find the kernel: `AMD_SERIALIZE_KERNEL=3` and `HIP_LAUNCH_BLOCKING=1`, rocgdb; suspect custom and compiled kernels.

## Limits
The driver holds lines back when there are many: the process may not be told. The same GPU under different programs
asks for the vendor's diagnostics.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.hardware import KernelEvent
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.hardware import same_host
from whichrank.timeline.job_state import kernel_events

CODE = "CUDA162"
CAUSE = "cuda-illegal-access"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Find the faulting kernel: AMD_SERIALIZE_KERNEL=3 and HIP_LAUNCH_BLOCKING=1, or rocgdb.",
        "Only if the same GPU reports it under different programs: run the vendor's diagnostics on it.",
    ),
    alternatives=(("xid-gpu-fault", "a fault that stays with one GPU is a hardware fault"),),
    next=(
        NextStep(
            "AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1 torchrun … (a short run)",
            "the traceback then names the operation that faulted",
            ("cuda-illegal-access",),
            "ends",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.hardware.kernel:
        return hardware_findings.NO_KERNEL_LOG
    faults = [(e, _owners(case, e)) for e in case.hardware.of_kind("gpu_page_fault")]
    of_job = [e for e, owners in faults if not owners or any(_of_job(case, owner) for owner in owners)]
    events, weight = kernel_events.counting(case, of_job)
    events = kernel_events.first_events(events)
    if not events:
        return []
    first = events[0]
    owners = [owner for owner in _owners(case, first) if _of_job(case, owner)]
    found = {r for o in owners if (r := case.hardware.rank_of(o.pid, o.host)) is not None}
    ranks = tuple(sorted(found)) if len(found) == 1 else ()
    name = f"{owners[0].process} (pid {owners[0].pid})" if owners else "A process"
    who = hardware_findings.names(case, ranks) if ranks else name
    where = f" on {first.host}" if first.host and not ranks else ""
    message = (
        f"{who}{where} ran a kernel that touched memory which it must not, on the GPU at {first.device}"
        f" (page fault of amdgpu).{hardware_findings.aside(case, events, weight)}"
    )
    subject = Subject(ranks=ranks, hosts=(first.host,) if first.host and not ranks else ())
    return [
        hardware_findings.found(
            case, _CLAIM, [e.ref for e in [*events[:3], *owners[:1]]], message,
            Grade.PROVES if owners else Grade.SUPPORTS,
            weight=weight, subject=subject, onset_ns=kernel_events.onset(events),
        )
    ]  # fmt: skip


def _owners(case: Case, fault: KernelEvent) -> list[KernelEvent]:
    """Whose fault it was, by the line itself or by those about the same GPU."""
    if fault.pid is not None:
        return [fault]
    told = case.hardware.of_kind("gpu_page_fault", "gpu_process")
    return [e for e in told if e.pid is not None and e.device == fault.device and same_host(e.host, fault.host)]


def _of_job(case: Case, owner: KernelEvent) -> bool:
    return case.hardware.rank_of(owner.pid, owner.host) is not None or kernel_events.is_trainer(owner.process)
