"""The CUDA driver does not fit the run time.

## What it finds
A driver that is too old, differs between kernel and user space, or is not there.

## Why it happens
An image built for a newer CUDA, an update of the driver without a restart of the host, a compatibility package on a
GPU that does not support it.

## How it decides
The words of CUDA, torch or NCCL. The hosts that print them are named, unless all do.

## Example
`CUDA driver version is insufficient for CUDA runtime version`

## Fix
Update the driver of that host (and restart it), or use an image built for its CUDA version.

## Limits
`nvidia-smi` on that host shows both versions.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import statements

CODE = "SOFT102"
CAUSE = "driver-mismatch"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Update the driver of that host, or use a build for the CUDA version that it supports.",
        "After an update of the driver restart the host: kernel module and user space must be the same version.",
    ),
    blames="host",
    next=(NextStep("nvidia-smi; cat /proc/driver/nvidia/version", "shows both versions", (CAUSE,), "none"),),
)
_WORDS = (
    "driver version is insufficient", "driver on your system is too old", "Driver/library version mismatch",
    "unsupported display driver / cuda driver combination", "forward compatibility was attempted on non supported HW",
    "CUDA Driver version found is", "Found no NVIDIA driver", "Failed to initialize NVML",
)  # fmt: skip


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    plain = statements.said(case, *_WORDS)
    more = statements.beside(plain, statements.known(case, CAUSE))
    signs = statements.first_to_fail([*plain, *more])
    if not signs:
        return []
    ranks = statements.unless_all(case, statements.ranks_of(signs))
    whose = building.whose(case, ranks, signs)
    message = f"The CUDA driver of {whose} does not fit: {building.short(signs[0].ref.quote)}."
    return [building.found(case, _CLAIM, signs, message, Grade.PROVES if plain else statements.surest(more), ranks)]
