"""Stop a launcher for a moment: it must not end the other ranks before they have been asked."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from whichrank.evidence.collectors import processes
from whichrank.model.last_words import Words


@contextmanager
def paused(launchers: Sequence[Words]) -> Iterator[None]:
    """Stopped inside the block, and going on after it, also when this process does not live to see its end."""
    meant = [words.pid for words in launchers if processes.same(words.pid, words.start_ticks)]
    reviver = _reviver(meant) if meant else None
    if reviver is None:
        yield
        return
    try:
        for pid in meant:
            _send(pid, signal.SIGSTOP)
        yield
    finally:
        for words in launchers:
            if words.pid in meant and processes.same(words.pid, words.start_ticks):
                _send(words.pid, signal.SIGCONT)
        reviver.kill()
        reviver.communicate()


def _reviver(pids: Sequence[int]) -> subprocess.Popen[bytes] | None:
    """A process that lets them go on when we are killed: the end of our pipe tells it."""
    script = f"read nothing; kill -CONT {' '.join(map(str, pids))}"
    try:
        return subprocess.Popen(  # noqa: S603 - numbers of processes, in a shell of its own
            ["/bin/sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return
