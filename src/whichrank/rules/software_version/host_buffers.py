"""NCCL could not make its buffers in host memory, although CUDA says that memory is exhausted.

## What it finds
`Cuda failure 2 'out of memory'` in NCCL's transport over shared memory.

## Why it happens
NCCL 2.24 and later makes the buffers that ranks of one host share with cuMem calls. On kernels or virtual machines
without NUMA (`numa=off`), and with some drivers, these calls fail with "out of memory" while GPU and host have room.

## How it decides
NCCL prints the files through which an error returns. If the first of them behind the failed allocation is the
transport over shared memory (`transport/shm.cc`), a host buffer failed, not memory of the GPU.

## Example
    include/alloc.h:120 NCCL WARN Cuda failure 2 'out of memory'
    NCCL INFO include/alloc.h:158 -> 1
    NCCL INFO transport/shm.cc:528 -> 1

## Fix
`NCCL_CUMEM_HOST_ENABLE=0`, with a /dev/shm that is large enough; or a kernel without `numa=off`, or a newer driver.

## Limits
Needs `NCCL_DEBUG=INFO`: with WARN the files are not printed.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import nccl_allocations

CODE = "SOFT105"
CAUSE = "cumem-host"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "NCCL_CUMEM_HOST_ENABLE=0 (then /dev/shm must be large enough).",
        "Start the kernel without numa=off, or update driver and NCCL.",
    ),
    blames="host",
    alternatives=(("host-out-of-memory", "the host may really have no memory left"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.nccl:
        return NotEvaluated("logs of NCCL")
    signs = nccl_allocations.of_host_buffers(case)
    if not signs:
        return []
    where = ", ".join(sorted({sign.host for sign in signs if sign.host})) or "a host"
    message = f"NCCL could not make its buffers in host memory on {where}; the GPU's memory is not exhausted."
    return [building.found(case, _CLAIM, signs, message, Grade.SUPPORTS)]
