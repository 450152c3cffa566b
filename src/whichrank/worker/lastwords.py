"""The recorder of a process's last words: a mapped file that outlives it.

Copied into the job beside `startup.py`: standard library only, for any Python that torch runs on.
"""

from __future__ import annotations

import mmap
import os
import time
from typing import Any

from whichrank.model import last_words as layout

WITHIN = "WHICHRANK_WITHIN"
"""Rank and process that everything below it was started by."""
_LAUNCHERS = (b"torchrun", b"torch.distributed.run", b"torch.distributed.launch", b"accelerate", b"deepspeed")

_DATED = ("enqueued", "completed", "phase")


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
        rank, local, world = _number("RANK"), _number("LOCAL_RANK"), _number("WORLD_SIZE")
        if _launches():  # in a pod it is given the number of the pod
            rank = local = world = -1
            task = None
            os.environ.pop(WITHIN, None)  # what it starts is given ranks anew
        else:
            task = task_of_step() if rank < 0 else None
            rank, local, world = task or (rank, local, world)
        below = rank >= 0 and task is None and _is_below(rank)
        self.words = layout.Words(
            pid=os.getpid(),
            parent=os.getppid(),
            start_ticks=start_ticks(),
            rank=rank,
            local_rank=local,
            world=world,
            flags=layout.GUESSED if task is not None else layout.BELOW if below else 0,
            attempt=max(_number("TORCHELASTIC_RESTART_COUNT"), 0),
            started_ns=now,
            changed_ns=now,
        )
        path = f"{folder}/{self.words.pid}.{self.words.start_ticks}{layout.SUFFIX}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            # Blocks are reserved now: a full disk must not turn a later write into a SIGBUS.
            os.posix_fallocate(descriptor, 0, layout.SIZE)
            self._map = mmap.mmap(descriptor, layout.SIZE)
        finally:
            os.close(descriptor)

    def note(self, **changes: Any) -> None:
        """Change words and write them; a change of counters or phase is dated."""
        old, now = self.words, time.time_ns()
        if any(changes.get(name, getattr(old, name)) != getattr(old, name) for name in _DATED):
            changes["changed_ns"] = now
        self.words = new = old._replace(**changes, beat=old.beat + 1, beat_ns=now)
        at = (new.beat % 2) * layout.SLOT
        self._map[at : at + layout.SLOT] = layout.pack(new)


def _is_below(rank: int) -> bool:
    """Whether a process that was given the same rank has started this one; whatever is started here is told so."""
    given, _, holder = os.environ.get(WITHIN, "").partition(":")
    if given == str(rank) and holder != str(os.getpid()):
        return True
    os.environ[WITHIN] = f"{rank}:{os.getpid()}"
    return False


def task_of_step() -> tuple[int, int, int] | None:
    """Rank, local rank and world as Slurm numbers tasks: scripts without a launcher take these for their own."""
    rank, local = _number("SLURM_PROCID"), _number("SLURM_LOCALID")
    world = max(_number("SLURM_STEP_NUM_TASKS"), _number("SLURM_NTASKS"))
    # Outside of a step (in the batch script) the numbers are there too, and mean nothing.
    return (rank, local, world) if 0 <= rank < world > 1 and _number("SLURM_STEP_ID") >= 0 else None


def _launches() -> bool:
    """Whether this is a launcher: it starts ranks and is none, whatever its variables say."""
    try:
        with open("/proc/self/cmdline", "rb") as stream:  # noqa: PTH123
            words = stream.read(65536).split(b"\0")[:8]
    except OSError:
        return False
    # What Python runs: the word after -m, or the first that is no option. What follows belongs to the program.
    options = [word for word in words[1:] if word != b"-m"]
    program = next((word for word in options if not word.startswith(b"-")), b"")
    return any(word.rpartition(b"/")[2] in _LAUNCHERS for word in (words[0], program))


def _number(name: str) -> int:
    """A small number of the environment; -1 where there is none."""
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() and len(text) < 8 else -1
