"""A device-side assertion failed: an index out of range, bad labels.

## What it finds
`CUDA error: device-side assert triggered` (in torch 1.x `cuda runtime error (59) : …`), and the assertion that the
kernel printed.

## Why it happens
A label or token id outside of the table, an index that a collate function or a tokenizer got wrong, mostly in the
data of one rank.

## How it decides
The CUDA error on a rank, wherever it surfaces: in Python, or in the NCCL watchdog, which only meets the error and
is not its cause. The assertion's own words are quoted where they were printed.

## Example
`IndexKernel.cu:93: … Assertion `index < sizes[i]` failed`, then the watchdog of rank 1 ends with the CUDA error.

## Fix
Check ids against the size of the table before the call; `CUDA_LAUNCH_BLOCKING=1` makes the traceback point at it.

## Limits
CUDA reports the error at a later call: without `CUDA_LAUNCH_BLOCKING=1` the line of the traceback is not the
culprit's.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.events.processes import CudaError
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import deaths, statements

CODE = "CUDA102"
CAUSE = "cuda-device-assert"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Check indices, labels and token ids against the tensor that they index, on the data of that rank.",
        "Run once with CUDA_LAUNCH_BLOCKING=1: then the traceback points at the operation.",
    ),
    next=(
        NextStep(
            "CUDA_LAUNCH_BLOCKING=1 torchrun … (a short run)",
            "the traceback then names the operation that asserted",
            ("cuda-device-assert",),
            "ends",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    lines = statements.of_kind(case, CudaError, where=lambda e: e.what == "assert_line")
    if any("checkForNaN" in s.ref.quote for s in lines):
        return []  # torch's own check of a buffer: told as nan-origin
    errors = statements.of_kind(case, CudaError, where=lambda e: e.what == "device_assert")
    errors += statements.said_by_nccl(case, "device-side assert")
    signs = statements.first_to_fail([*errors, *lines])
    if not signs:
        return []
    ranks = statements.ranks_of(signs) or deaths.only_one_failed(case)
    reason = f" ({building.short(lines[0].text, 100)})" if lines else ""
    whose, rest = building.whose(case, ranks, signs), building.others(case, ranks)
    message = f"A kernel of {whose} hit a device-side assertion{reason}{rest}."
    return [building.found(case, _CLAIM, signs, message, Grade.PROVES if errors else Grade.SUPPORTS, ranks)]
