"""A GPU does not answer any more.

## What it finds
Words of the driver or of nvidia-smi that a GPU is lost, in any output.

## Why it happens
The PCIe link to the GPU is gone: power, heat, seating, a riser, or the GPU itself.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`Unable to determine the device handle for GPU 0000:17:00.0: GPU is lost.`

## Fix
Drain the host and power-cycle it: a reset does not bring the GPU back. If it happens again check seating, power and
cooling, and replace the GPU or riser.

## Limits
Which rank used the GPU is known only where the output says so.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "GPUH202"
CAUSE = "gpu-fell-off-bus"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Drain the host and power-cycle it: a reset does not bring the GPU back.",
        "If it happens again check seating, power and cooling, and replace the GPU or riser.",
    ),
    blames="gpu",
    next=(
        NextStep(
            "dmesg -T | grep -E 'NVRM|Xid|AER'",
            "Xid 79 and PCIe errors tell when and which slot",
            (
                "gpu-fell-off-bus",
                "xid-gpu-fault",
            ),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "A GPU of {who} does not answer over PCIe: {what}.")
