"""The NVSwitch fabric is not ready: the fabric manager has not done its work.

## What it finds
GPUs whose fabric state is not `Completed` with status `Success`, while nvidia-smi says that they have a fabric.

## Why it happens
On NVSwitch machines nvidia-fabricmanager must run, in the same version as the driver; until it has registered a GPU,
CUDA answers `system not yet initialized` (802), and NVLS or multicast cannot be set up.

## How it decides
By `nvidia-smi -q` (or `fabric.state`, `fabric.status` of a query). `N/A` means that there is no fabric: clear. Seen in
a job that failed it is an error; otherwise a hint.

## Example
`Fabric / State : In Progress`

## Fix
Start nvidia-fabricmanager in the version of the driver, look at its log, then restart the job.

## Limits
Right after a boot `In Progress` is normal for some minutes.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.hardware import GpuState
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import kernel_events

CODE = "GPUH105"
CAUSE = "fabric-manager"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Start nvidia-fabricmanager in exactly the driver's version: systemctl status nvidia-fabricmanager.",
        "Read its log (/var/log/fabricmanager.log) for the switch or link that it waits for.",
    ),
    next=(
        NextStep(
            "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 -i fabric",
            "tells whether it runs and whether the GPUs are registered",
            ("fabric-manager",),
            "none",
        ),
    ),
)
_READY = ("completed", "n/a", "not supported", "0", "3")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    told = [s for s in case.hardware.gpus if s.values.get("fabric_state") or s.values.get("fabric_status")]
    if not case.hardware.gpus:
        return NotEvaluated("nvidia-smi -q of the hosts")
    waiting = [s for s in told if not _ready(s)]
    if not waiting:
        return []
    first = waiting[0]
    state, status = first.values.get("fabric_state", "unknown"), first.values.get("fabric_status", "unknown")
    words = f"fabric state {state}, status {status}"
    hosts = tuple(sorted({s.host for s in waiting if s.host}))
    count = len({(s.host, s.uuid or s.bus_id or s.index) for s in waiting})
    where = f" of {', '.join(hosts[:3])}" if hosts else ""
    message = f"The NVSwitch fabric is not ready on {count} GPU{'s' if count > 1 else ''}{where}: {words}."
    subject = hardware_findings.state_subject(case, first)
    refs = [hardware_findings.value_ref(s, words) for s in waiting[:3]]
    return [
        hardware_findings.found(
            case, _CLAIM, refs, message, Grade.SUPPORTS, weight=kernel_events.state_weight(case), subject=subject
        )
    ]


def _ready(state: GpuState) -> bool:
    fabric, status = state.values.get("fabric_state", "").lower(), state.values.get("fabric_status", "").lower()
    if fabric == "completed" or not fabric:
        return status in ("", "success", "n/a", "0")
    return fabric in _READY
