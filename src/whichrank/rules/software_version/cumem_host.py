"""NCCL's cuMem buffers don't work on this system.

## What it finds
Failures of the cuMem calls with which NCCL (2.19, for host buffers 2.24, and later) makes its buffers.

## Why it happens
Containers forbid the NUMA calls that host buffers need, virtual machines have no NUMA, or the driver is too old for
the calls.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`transport/shm.cc:590 NCCL WARN Cuda failure 1 'invalid argument'`

## Fix
NCCL_CUMEM_HOST_ENABLE=0 (then /dev/shm must be large enough); NCCL_CUMEM_ENABLE=0 if that is not enough. Or
CAP_SYS_NICE for the container, a newer driver, or NCCL 2.26.3 and later, which tries one host buffer at the start and
goes to /dev/shm by itself where it can't be made; not where it can be made and then not be shared.

## Limits
The same CUDA error in other files of NCCL has other causes.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "SOFT203"
CAUSE = "cumem-host"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "NCCL_CUMEM_HOST_ENABLE=0 (then /dev/shm must be large enough); NCCL_CUMEM_ENABLE=0 if that is not enough.",
        (
            "Or CAP_SYS_NICE for the container, or a newer driver. NCCL 2.26.3 and later goes to /dev/shm by itself "
            "where host buffers can't be made at all, not where they can't be shared or reached."
        ),
    ),
    blames="host",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "NCCL's cuMem buffers fail on {who}: {what}.")
