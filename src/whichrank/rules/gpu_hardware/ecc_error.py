"""Uncorrectable error in a GPU's memory.

## What it finds
Xids 48, 64, 94, 95, 140, 171 and 172 during the run, or uncorrectable errors that nvidia-smi counted between two
looks.

## Why it happens
A cell or a line of the GPU's memory fails. Ampere and later contain many such errors to one process (94) and remap
the row at the next reset (63); an uncontained one (95) spoils all work on that GPU.

## How it decides
By the kernel log first, within the time of the run; Xids that say "caused by previous Xid" and channel removals (45)
are consequences, and count, with less confidence, only where the log has nothing else of that Xid. Of nvidia-smi only
a rise of the volatile counter between two reports, a failed remap or an exceeded SRAM threshold is held against a GPU;
a volatile count seen once, or a remap that is pending, is offered where the job failed, and held against the GPU if the
kernels of its rank alone failed; corrected errors and the board's life-time counters never are.

## Example
`NVRM: Xid (PCI:0000:17:00): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No`

## Fix
Restart the job; reset the GPU so that the remap takes effect; replace the board only if remapping failed, the SRAM
threshold is exceeded, or it happens again. After an uncontained error go back to a checkpoint from before it.

## Limits
A single report of nvidia-smi does not tell when an error was counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from whichrank.facts.hardware import xids
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.events.processes import CudaError
from whichrank.records.hardware import GpuState
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import kernel_events
from whichrank.timeline.job_state.kernel_events import Weight

CODE = "GPUH101"
CAUSE = "ecc-error"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Restart the job without this GPU, and reset the GPU so that the row remap takes effect.",
        "Have the board replaced if remapping failed, the SRAM threshold is exceeded, or it happens again.",
    ),
    next=(
        NextStep(
            "nvidia-smi -q -d ECC,ROW_REMAPPER",
            "tells whether rows were remapped, are pending, or could not be",
            ("ecc-error",),
            "none",
        ),
    ),
)


_OF_KERNELS = ("launch_failure", "illegal_access", "ecc")
"""Failures that an error in memory can cause."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.hardware.kernel and not case.hardware.gpus:
        return hardware_findings.NO_GPU_STATE
    return _by_kernel(case) or _by_counters(case)


def _by_kernel(case: Case) -> list[Finding]:
    events, weight = kernel_events.counting(case, kernel_events.xid_events(case, "memory"))
    events = kernel_events.first_events(events)
    if not events:
        return []
    first = events[0]
    fact = xids.xid(first.code or 0)
    name = fact.name.lower() if fact else "memory error"
    who = hardware_findings.gpu_text(case, first.host, first.device)
    message = f"{who} had an uncorrectable memory error (Xid {first.code}, {name})."
    message += hardware_findings.aside(case, events, weight)
    return [
        hardware_findings.found(
            case, _CLAIM, [e.ref for e in events], message, Grade.PROVES, weight=weight, fix=fact.fix if fact else (),
            subject=hardware_findings.subject_of(case, events), onset_ns=kernel_events.onset(events),
        )
    ]  # fmt: skip


def _by_counters(case: Case) -> list[Finding]:
    by_gpu: dict[object, list[GpuState]] = {}
    for state in case.hardware.gpus:
        if (
            state.number("ecc_unc_volatile") is not None
            or state.is_yes("remap_failure")
            or state.is_yes("sram_threshold")
            or state.is_yes("remap_pending")
        ):
            by_gpu.setdefault((state.host, state.uuid or state.bus_id or state.index), []).append(state)
    rising = [(states, rise) for states in by_gpu.values() if (rise := _rise(states)) > 0]
    weight = kernel_events.state_weight(case)
    if rising:
        states, rise = max(rising, key=lambda pair: pair[1])
        words = f"uncorrectable ECC errors (volatile) rose by {rise:.0f}"
        return [_counted(case, states[-1], words, Grade.PROVES, Weight("error"))]
    broken = [s[-1] for s in by_gpu.values() if s[-1].is_yes("remap_failure") or s[-1].is_yes("sram_threshold")]
    if broken:
        words = "row remapping failed" if broken[0].is_yes("remap_failure") else "the SRAM error threshold is exceeded"
        return [_counted(case, broken[0], words, Grade.SUPPORTS, weight)]
    once = [s[-1] for s in by_gpu.values() if _had_errors(s[-1])]
    if len(once) != 1:
        return []
    count = once[0].number("ecc_unc_volatile") or 0
    words = (
        f"{count:.0f} uncorrectable ECC errors since the driver was loaded"
        if count
        else "a row remap is pending: it had uncorrectable errors, and was not reset since"
    )
    ranks = hardware_findings.state_subject(case, once[0]).ranks
    failed = {event.rank for event in case.events(CudaError) if event.what in _OF_KERNELS}
    if ranks and failed == set(ranks):
        return [_counted(case, once[0], f"{words}; the kernels of its rank failed", Grade.SUPPORTS, weight)]
    return [
        _counted(
            case, once[0], words, Grade.HINTS, Weight("info" if weight.severity == "info" else "warning", weight.less)
        )
    ]


def _had_errors(state: GpuState) -> bool:
    return (state.number("ecc_unc_volatile") or 0) > 0 or state.is_yes("remap_pending")


def _rise(states: Sequence[GpuState]) -> float:
    """How much the counter rose; after a reset it starts again at zero, which is no rise."""
    counts = [n for s in states if (n := s.number("ecc_unc_volatile")) is not None]
    return max((later - earlier for earlier, later in pairwise(counts)), default=0.0)


def _counted(case: Case, state: GpuState, words: str, grade: Grade, weight: Weight) -> Finding:
    message = f"{hardware_findings.state_text(case, state)}: {words}."
    subject = hardware_findings.state_subject(case, state)
    return hardware_findings.found(
        case, _CLAIM, [hardware_findings.value_ref(state, words)], message, grade, weight=weight, subject=subject
    )
