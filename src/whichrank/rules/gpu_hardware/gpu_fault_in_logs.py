"""The GPU or its firmware failed, by words in any output.

## What it finds
The driver's own words that the GPU's system processor does not answer, where the kernel log itself is not at hand.

## Why it happens
A defect of the driver or of the firmware on the GPU, or a GPU that fails.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted.

## Example
`Timeout after 6s of waiting for RPC response from GPU0 GSP!`

## Fix
Drain the host and reset the GPU; update the driver. Where it comes again on the same GPU, replace it.

## Limits
Which rank used the GPU is known only where the output says so.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "GPUH205"
CAUSE = "xid-gpu-fault"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Drain the host and reset the GPU; update the driver.",
        "Where it comes again on the same GPU, run without its firmware (NVreg_EnableGpuFirmware=0), or replace it.",
    ),
    blames="gpu",
    next=(NextStep("dmesg -T | grep -E 'NVRM|Xid'", "tells which GPU, when, and what came before", (CAUSE,), "none"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "A GPU of {who} failed: {what}.")
