"""Memory that NCCL could not get: of the GPU, or for the buffers in host memory that ranks of one host share."""

from __future__ import annotations

from whichrank.records.nccl import NcclProcess, NcclWarning
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.statements import Statement, nccl_statement

_EXHAUSTED = ("'out of memory'", "Failed to CUDA calloc", "Failed to CUDA malloc")
_HOST_TRANSPORT = "transport/shm.cc"
_NEAR = 12
"""Lines of one process between the failed call and the files through which its error returns."""


def of_gpu(case: Case) -> list[Statement]:
    return _failed(case, host=False)


def of_host_buffers(case: Case) -> list[Statement]:
    return _failed(case, host=True)


def _failed(case: Case, *, host: bool) -> list[Statement]:
    return [
        nccl_statement(case, process, warning)
        for process in case.nccl
        for warning in process.warnings
        if any(words in warning.text for words in _EXHAUSTED) and _for_host(process, warning) is host
    ]


def _for_host(process: NcclProcess, warning: NcclWarning) -> bool:
    """Whether the first file behind the allocator's own is the transport over shared memory."""
    behind = (t for t in process.trails if 0 < t.line - warning.line <= _NEAR and "alloc.h" not in t.place)
    first = next(behind, None)
    return first is not None and first.place.startswith(_HOST_TRANSPORT)
