"""An NVLink failed.

## What it finds
CUDA errors about NVLink, NCCL that finds peer access switched off between GPUs that NVLink joins, NCCL's diagnostics.

## Why it happens
A link or a switch port is broken, or was not trained.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`CUDA error: uncorrectable NVLink error detected during the execution`

## Fix
nvidia-smi nvlink -s and -e on that host; reset GPUs and switches together. Take the host out if a link stays
inactive.

## Limits
With the fabric manager down all links look broken.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "GPUH203"
CAUSE = "nvlink-fault"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "nvidia-smi nvlink -s and -e on that host; reset GPUs and switches together.",
        "Take the host out if a link stays inactive.",
    ),
    blames="gpu",
    next=(
        NextStep(
            "nvidia-smi nvlink -s",
            "shows the links that are down",
            (
                "nvlink-fault",
                "fabric-manager",
            ),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "NVLink does not work for {who}: {what}.")
