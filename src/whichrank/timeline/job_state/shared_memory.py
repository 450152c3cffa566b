"""Which failures are of shared memory: segments, and what Python keeps there."""

from __future__ import annotations

from collections.abc import Iterable

from whichrank.records.events.base import Event
from whichrank.timeline.job_state.statements import Statement, is_traceback

_LOCKS = tuple(
    f"multiprocessing/{name}.py" for name in ("synchronize", "queues", "context", "sharedctypes", "shared_memory")
)
_SEGMENT = ("dev/shm", "shared memory", "shm-", "posix_fallocate", "</torch_", "unable to mmap")


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
