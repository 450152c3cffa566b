"""Which failures are of shared memory: segments, and what Python keeps there."""

from __future__ import annotations

from collections.abc import Iterable

from whichrank.records.events.base import Event
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.statements import Statement, is_traceback

SHM = "/dev/shm"  # noqa: S108
GUESS = "Unexpected bus error encountered in worker"
"""torch's words on a data loader's worker that died of SIGBUS; the rest of the line is a guess."""

_LOCKS = tuple(
    f"multiprocessing/{name}.py" for name in ("synchronize", "queues", "context", "sharedctypes", "shared_memory")
)
_ROOM = 1 << 30
"""Bytes that no data loader of a small job fills."""
_SEGMENT = ("dev/shm", "shared memory", "shm-", "posix_fallocate", "</torch_", "unable to mmap")


def roomy(case: Case) -> bool:
    """Whether /dev/shm is known to have room, on every host of which its size is known."""
    seen = [row for state in case.hardware.hosts for row in state.file_systems if row.path == SHM and not row.inodes]
    known = [(row.size, row.size if row.free is None else row.free) for row in seen if row.size is not None]
    return bool(known) and all(size >= _ROOM and free >= size // 4 for size, free in known)


def about_shared_memory(found: Statement) -> bool:
    """Whether a failed allocation is one of a shared-memory segment, or of a semaphore, which lies there too."""
    return any(words in found.text for words in _SEGMENT) or (found.event is not None and _makes_lock(found.event))


def _makes_lock(event: Event) -> bool:
    """Whether an exception comes out of Python's making of locks, queues and shared arrays: sem_open, shm_open."""
    return bool(event.frames) and event.frames[-1].file.endswith(_LOCKS)


def repeats(found: Statement, told: Iterable[Statement]) -> bool:
    """Whether this is the last line of one of these tracebacks, which says more by its frames."""
    return any(
        is_traceback(s) and s.ref.source == found.ref.source and s.ref.quote.strip() == found.ref.quote.strip()
        for s in told
    )
