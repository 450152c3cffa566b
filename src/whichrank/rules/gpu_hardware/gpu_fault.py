"""The driver reports a fault of a GPU or of its firmware (Xid).

## What it finds
Xids of hardware, firmware or driver during the run that have no cause of their own here: 62, 109, 119, 120, 143, 158
and the like; a GPU that the driver could not start.

## Why it happens
A defective board, a firmware that stopped answering, a driver fault.

## How it decides
By the table of Xids: category and severity as NVIDIA's catalogue has them. Xids from before the run, channel removals
(45) and notices accuse nobody; an Xid that a program causes is told as such. One "caused by previous Xid N" follows
from that; where N itself is not in the log it counts as N, with less confidence. The first GPU in time is named.

## Example
`NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=python, Timeout after 6s of waiting for RPC response from GPU4 GSP!`

## Fix
What the catalogue asks for: mostly a reset of the GPU, a reboot if that does not help, a newer driver for faults of
its firmware.

## Limits
A number that the table does not know is reported with less confidence.
"""

from __future__ import annotations

from whichrank.facts.hardware import xids
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import kernel_events

CODE = "GPUH103"
CAUSE = "xid-gpu-fault"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=("Drain the node, reset the GPU (or reboot), and run the vendor's diagnostics before it is used again.",),
    next=(
        NextStep(
            "dmesg -T | grep -E 'NVRM|SXid'; nvidia-smi -q -d ECC,ROW_REMAPPER",
            "shows what came first, and what the driver asks for (Xid 154)",
            ("xid-gpu-fault", "ecc-error", "gpu-fell-off-bus", "nvlink-fault"),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.hardware.kernel:
        return hardware_findings.NO_KERNEL_LOG
    told = kernel_events.xid_events(case, "gpu") or case.hardware.of_kind("gpu_init_failed")
    events, weight = kernel_events.counting(case, told)
    events = kernel_events.first_events(events)
    if not events:
        return []
    first = events[0]
    fact = xids.xid(first.code) if first.code is not None else None
    who = hardware_findings.gpu_text(case, first.host, first.device)
    if first.code is None:
        what, sure = "could not be started by the driver (RmInitAdapter failed)", Grade.SUPPORTS
    elif fact is None:
        what, sure = f"reported Xid {first.code}, which is not in the table", Grade.HINTS
    else:
        what, sure = f"reported Xid {first.code} ({fact.name}): {fact.meaning.rstrip('.')}", Grade.PROVES
    message = f"{who} {what}.{hardware_findings.aside(case, events, weight)}"
    return [
        hardware_findings.found(
            case, _CLAIM, [e.ref for e in events], message, sure, weight=weight, fix=fact.fix if fact else (),
            subject=hardware_findings.subject_of(case, events), onset_ns=kernel_events.onset(events),
        )
    ]  # fmt: skip
