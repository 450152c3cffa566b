"""CUDA met an uncorrectable memory error of a GPU.

## What it finds
The CUDA error "uncorrectable ECC error encountered" in any output, or NCCL's diagnostics that count such errors.

## Why it happens
A memory cell of the GPU failed beyond what its code can correct.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`RuntimeError: CUDA error: uncorrectable ECC error encountered`

## Fix
Find the GPU (nvidia-smi -q -d ECC,ROW_REMAPPER), reset it so that rows are remapped, and take the host out of the
pool until then. Replace the GPU if remapping failed or the error comes back.

## Limits
The output of a launcher often does not say which rank printed it: the kernel log (Xid 48, 63, 64, 94, 95) names the
GPU.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "GPUH201"
CAUSE = "ecc-error"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        (
            "Find the GPU (nvidia-smi -q -d ECC,ROW_REMAPPER), reset it so that rows are remapped, and take the host "
            "out of the pool until then."
        ),
        "Replace the GPU if remapping failed or the error comes back.",
    ),
    blames="gpu",
    next=(
        NextStep("nvidia-smi -q -d ECC,ROW_REMAPPER", "names the GPU and what to do with it", ("ecc-error",), "none"),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "The GPU of {who} has an uncorrectable memory error.")
