"""The NVSwitch fabric is not ready, by the words of CUDA or NCCL.

## What it finds
CUDA error 802 ("system not yet initialized"), and NCCL that can not make or bind multicast memory (NVLS) or use
multi-node NVLink.

## Why it happens
The fabric manager (or the IMEX service) is not running, not of the version of the driver, or has not finished after a
reset.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'`

## Fix
systemctl restart nvidia-fabricmanager, in exactly the version of the driver; nvidia-smi -q must show Fabric State
Completed, Status Success. Reset the GPUs or reboot if it does not. For multi-node NVLink: nvidia-imex on all nodes,
and its channel in the container. NCCL_NVLS_ENABLE=0 goes around NVLS failures.

## Limits
A container without the needed device files gives the same NVLS failure.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "GPUH204"
CAUSE = "fabric-manager"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        (
            "systemctl restart nvidia-fabricmanager, in exactly the version of the driver; nvidia-smi -q must show "
            "Fabric State Completed, Status Success. Reset the GPUs or reboot if it does not."
        ),
        "For multi-node NVLink: nvidia-imex on all nodes, and its channel in the container.",
        "NCCL_NVLS_ENABLE=0 goes around NVLS failures.",
    ),
    blames="host",
    next=(
        NextStep(
            "nvidia-smi -q | grep -A3 Fabric; systemctl status nvidia-fabricmanager",
            "must say Completed and Success",
            ("fabric-manager",),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "The NVSwitch fabric of {who} is not ready: {what}.")
