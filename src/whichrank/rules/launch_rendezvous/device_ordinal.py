"""A process asks for a GPU that is not visible to it.

## What it finds
`invalid device ordinal`, or a rank that sees no GPU at all.

## Why it happens
`CUDA_VISIBLE_DEVICES` renumbers devices from 0 while the code still uses physical numbers; more processes than
GPUs; the global rank used as a device index on a second node; a scheduler that gave fewer GPUs.

## How it decides
CUDA's own error. The ranks that fail are named, unless all do. Where the error names none, those whose local rank is
beyond the GPUs of `CUDA_VISIBLE_DEVICES` in the launch are.

## Example
`RuntimeError: CUDA error: invalid device ordinal` on local rank 2 of a host with two visible GPUs.

## Fix
Use the local rank as the device index, and start as many processes as GPUs are visible.

## Limits
Where no GPU is visible at all, a missing driver looks the same.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.identity.layouts import without_gpu
from whichrank.timeline.job_state import deaths, statements

CODE = "LNCH107"
CAUSE = "device-ordinal"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Use LOCAL_RANK as the device index: visible devices are numbered from 0, whatever CUDA_VISIBLE_DEVICES says.",
        "Don't start more processes per node than there are visible GPUs.",
    ),
    blames="host",
    next=(
        NextStep(
            "echo $CUDA_VISIBLE_DEVICES; nvidia-smi -L",
            "shows how many GPUs the process can see",
            ("device-ordinal", "driver-mismatch"),
            "none",
        ),
    ),
)
_NONE = ("No CUDA GPUs are available", "no CUDA-capable device", "only supported with GPUs, no GPUs found")
_OLD_DRIVER = "API call is not supported in the installed CUDA driver"
"""After it a library's own variables hold nonsense, and so do its next messages."""
_ORDINAL = ("invalid device ordinal", "Invalid device id", "Attempting to deserialize object on CUDA device")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    ordinal = statements.said(case, *_ORDINAL) or statements.known(case, CAUSE)
    none = statements.said(case, *_NONE)
    signs = statements.first_to_fail(ordinal or none)
    if not signs or statements.said(case, _OLD_DRIVER):
        return []
    named = statements.ranks_of(signs) or without_gpu(case.layouts) or deaths.only_one_failed(case)
    ranks = statements.unless_all(case, named)
    what = "asked for a GPU number that is not visible to it" if ordinal else "sees no GPU"
    message = f"{building.who(case, ranks, signs)} {what}{building.others(case, ranks)}."
    return [building.found(case, _CLAIM, signs, message, Grade.PROVES if ordinal else Grade.SUPPORTS, ranks)]
