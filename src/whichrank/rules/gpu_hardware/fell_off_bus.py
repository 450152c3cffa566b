"""A GPU is no longer reachable over PCIe.

## What it finds
Xid 79 or 167, `GPU has fallen off the bus` (in three lines where the driver starts), a driver that cannot start the
GPU any more, or an nvidia-smi that says `GPU is lost` or `Unknown Error` of one GPU while it answers for others.

## Why it happens
Power, heat, a loose board or riser, a failing PCIe switch. The driver reads only ones from the GPU and gives up.

## How it decides
By the kernel log within the time of the run. What the same GPU reports afterwards, Xid 45 on its channels, and the
errors of peers are consequences. A fatal PCIe error report just before is quoted with it.

## Example
`NVRM: Xid (PCI:0000:09:00): 79, pid=0, GPU has fallen off the bus.`

## Fix
Drain and reboot the node (a power cycle if the GPU stays away), check power, cooling and seating; if it happens again
on the same GPU, have the board or the riser replaced.

## Limits
The log says that the link is gone, not which part failed.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.hardware import GpuState, KernelEvent
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.hardware import same_host
from whichrank.timeline.job_state import kernel_events

CODE = "GPUH102"
CAUSE = "gpu-fell-off-bus"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Drain and reboot the node; power-cycle it if the GPU does not come back.",
        "Check power, cooling and the seating of the board; if it happens again on this GPU, have it replaced.",
    ),
    alternatives=(("xid-gpu-fault", "the driver reports it as an Xid; another fault may have come first"),),
    next=(
        NextStep(
            "lspci -vvv -d 10de:; ipmitool sel list",
            "tells whether the device answers, and whether power or heat was reported",
            ("gpu-fell-off-bus", "gpu-thermal-or-power"),
            "none",
        ),
    ),
)
_ADDRESS = re.compile(r"[0-9a-fA-F:.]{5,16}")
_JUST_BEFORE_NS = 120 * 10**9
_LOST = ("gpu is lost", "unknown error", "err!", "insufficiently powered", "fallen off the bus")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.hardware.kernel and not case.hardware.gpus:
        return hardware_findings.NO_GPU_STATE
    return _by_kernel(case) or _by_smi(case)


def _by_kernel(case: Case) -> list[Finding]:
    lost = case.hardware.of_kind("gpu_lost")
    told = sorted(
        [*kernel_events.xid_events(case, "bus"), *lost], key=lambda e: (e.time_ns or e.uptime_ns or 0, e.line)
    )
    told = [e for e in told if not case.hardware.foreign(e.host, e.device)]
    events, weight = kernel_events.counting(case, told)
    events = kernel_events.first_events(events)
    if not events:
        return []
    first = events[0]
    refs = [e.ref for e in events[:3]] + _pcie_before(case, first)
    who = hardware_findings.gpu_text(case, first.host, first.device)
    message = f"{who} fell off the PCIe bus{_at(first)}.{hardware_findings.aside(case, events, weight)}"
    return [
        hardware_findings.found(
            case, _asking(first.device), refs, message, Grade.PROVES, weight=weight,
            onset_ns=kernel_events.onset(events),
            subject=hardware_findings.subject_of(case, events),
        )
    ]  # fmt: skip


def _asking(device: str) -> Claim:
    """The next command asks for the device where its address is known, and for all of NVIDIA's otherwise."""
    steps = tuple(replace(step, command=step.command.replace("-d 10de:", f"-s {device}")) for step in _CLAIM.next)
    return replace(_CLAIM, next=steps) if _ADDRESS.fullmatch(device) else _CLAIM


def _at(event: KernelEvent) -> str:
    return f" at {event.ref.time}" if event.ref.time else ""


def _pcie_before(case: Case, event: KernelEvent) -> list[Ref]:
    """Fatal reports of the same host's PCIe in the two minutes before."""
    refs = []
    for other in case.hardware.of_kind("pcie_error"):
        if other.text("severity") == "corrected" or not same_host(other.host, event.host):
            continue
        mine, theirs = event.uptime_ns or event.time_ns, other.uptime_ns or other.time_ns
        if mine is not None and theirs is not None and 0 <= mine - theirs < _JUST_BEFORE_NS:
            refs.append(other.ref)
    return refs[:2]


def _by_smi(case: Case) -> list[Finding]:
    lost = [s for s in case.hardware.gpus if _is_lost(s)]
    if not lost:
        return []
    state = lost[0]
    unread = ", ".join(sorted(state.unread)[:3])
    words = state.trouble or f"could not be read: {unread} ({next(iter(state.unread.values()))})"
    certain = "lost" in words.lower()
    message = f"{hardware_findings.state_text(case, state)} does not answer: nvidia-smi says {words!r}."
    return [
        hardware_findings.found(
            case, _CLAIM, [s.ref for s in lost[:4]], message, Grade.PROVES if certain else Grade.SUPPORTS,
            weight=kernel_events.state_weight(case), subject=hardware_findings.state_subject(case, state),
        )
    ]  # fmt: skip


def _is_lost(state: GpuState) -> bool:
    """A GPU of which nothing that changes could be read."""
    if any(words in state.trouble.lower() for words in _LOST):
        return True
    told = [word.lower() for word in state.unread.values()]
    return any("lost" in word for word in told) or (len(told) >= 3 and "temperature" in state.unread)
