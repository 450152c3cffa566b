"""GPU memory is exhausted on a rank.

## What it finds
`CUDA out of memory` on one or more ranks, or NCCL's own failure to get memory for its buffers.

## Why it happens
Batches of different length, one rank with more to hold (the first pipeline stage, rank 0 gathering results),
another process on the same GPU, fragmentation, or simply too large a model.

## How it decides
The allocator's exception, or NCCL's warning with the same words, on a rank that did not go on training. The ranks
that ran out within ten seconds of the first are named; everybody else only lost a peer.

## Example
Rank 3 raises `torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB`; ranks 0-2 end by SIGTERM.

## Fix
Lower the batch or sequence length, checkpoint activations, or shard more. If memory is free but fragmented, set
`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`. If other processes hold memory, end them.

## Limits
The message tells how much was asked for, not what filled the memory: `torch.cuda.memory._record_memory_history`
does.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.events.processes import CudaError
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import deaths, nccl_allocations, statements
from whichrank.timeline.job_state.exceptions import only_logged
from whichrank.timeline.job_state.statements import Statement

CODE = "HOST101"
CAUSE = "gpu-out-of-memory"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Lower the batch or sequence length on that rank, checkpoint activations, or shard the model further.",
        "If only this rank runs out, look at what it alone holds: longer samples, gathered results, other processes.",
        "With much memory reserved but unallocated: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    ),
    blames="gpu",
    next=(
        NextStep(
            "nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
            "shows whether another process holds memory of that GPU",
            ("gpu-out-of-memory",),
            "none",
        ),
    ),
)
_GIB = 1 << 30


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    plain = statements.of_kind(case, CudaError, where=lambda e: e.what == "out_of_memory")
    named = statements.known(case, CAUSE)
    if nccl_allocations.of_host_buffers(case):  # torch repeats the last words of NCCL
        plain, named = ([s for s in told if "Cuda failure" not in s.text] for told in (plain, named))
    plain += nccl_allocations.of_gpu(case)
    library = [s for s in statements.of_kind(case, CudaError) if "STATUS_ALLOC_FAILED" in s.text]
    known = statements.beside([*plain, *library], named)
    signs = statements.first_to_fail([*(plain or library), *known])
    if not signs:
        return []
    ranks = statements.ranks_of(signs) or deaths.only_one_failed(case)
    message = f"{building.who(case, ranks, signs)} ran out of GPU memory{_asked(signs)}{building.others(case, ranks)}."
    sure = Grade.PROVES if plain else max(Grade.SUPPORTS if library else Grade.HINTS, statements.surest(known))
    return [building.found(case, _CLAIM, signs, message, Grade.HINTS if only_logged(case) else sure, ranks)]


def _asked(signs: list[Statement]) -> str:
    for sign in signs:
        tried = sign.event.tried_bytes if isinstance(sign.event, CudaError) else None
        if tried is not None:
            return f": it asked for {tried / _GIB:.2f} GiB more"
    return ""
