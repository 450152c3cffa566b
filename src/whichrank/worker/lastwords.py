"""The recorder of a process's last words: a mapped file that outlives it.

Copied into the job beside `startup.py`: standard library only, for any Python that torch runs on.
"""

from __future__ import annotations

import mmap
import os
import time
from typing import Any

from whichrank.model import last_words as layout


def start_ticks(pid: int | str = "self") -> int:
    """When a process started, in the kernel's ticks; 0 where /proc does not say."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:  # noqa: PTH123 - pathlib is not imported into a job
            return int(stream.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


class Recorder:
    """Writes the words of this process; each write is one copy of a kilobyte."""

    def __init__(self, folder: str) -> None:
        now = time.time_ns()
        self.words = layout.Words(
            pid=os.getpid(),
            parent=os.getppid(),
            start_ticks=start_ticks(),
            rank=_number("RANK"),
            local_rank=_number("LOCAL_RANK"),
            world=_number("WORLD_SIZE"),
            attempt=max(_number("TORCHELASTIC_RESTART_COUNT"), 0),
            started_ns=now,
            changed_ns=now,
        )
        path = f"{folder}/{self.words.pid}.{self.words.start_ticks}{layout.SUFFIX}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # Blocks are reserved now: a full disk must not turn a later write into a SIGBUS.
            os.posix_fallocate(descriptor, 0, layout.SIZE)
            self._map = mmap.mmap(descriptor, layout.SIZE)
        finally:
            os.close(descriptor)

    def note(self, **changes: Any) -> None:
        """Change words and write them; a change of counters or phase is dated."""
        old = self.words
        new = old._replace(**changes)
        now = time.time_ns()
        if (new.enqueued, new.completed, new.phase) != (old.enqueued, old.completed, old.phase):
            new = new._replace(changed_ns=now)
        new = new._replace(beat=old.beat + 1, beat_ns=now)
        self.words = new
        at = (new.beat % 2) * layout.SLOT
        self._map[at : at + layout.SLOT] = layout.pack(new)


def _number(name: str) -> int:
    """A small number of the environment; -1 where there is none."""
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() and len(text) < 8 else -1
