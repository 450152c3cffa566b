"""Start the job as it was meant to be started, and end as it ends: same streams, same signals, same exit code."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from whichrank.evidence.collectors import processes
from whichrank.flows.env.recommend import environment
from whichrank.model.errors import UsageError
from whichrank.model.settings import Purpose
from whichrank.run.watch.output.streams import Streams

# Told on to the job. SIGCHLD is the job's own end; SIGTSTP and SIGCONT reach the whole group by themselves.
FORWARDED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
)  # fmt: skip
SI_KERNEL = 0x80
"""A signal of the terminal: the kernel has sent it to the job too."""


_OBSERVES = re.compile(r"DEBUG|TRACE|_FR_|LOG|DUMP|FAULTHANDLER|THREAD_NAME|REPORT_|WARN|TIMING|SHUTDOWN_TIMEOUT|_RAS_")
"""Names of settings that only say what is recorded and told."""
SECRETS = (
    "WHICHRANK_TOKEN", "WHICHRANK_WEBHOOK", "WHICHRANK_NOTIFY", "WHICHRANK_PAGERDUTY_KEY", "WHICHRANK_SMTP_PASSWORD",
)  # fmt: skip
"""Meant for this process, never for the job."""


def settings(purpose: Purpose, out: Path, environ: Mapping[str, str], *, network: bool = False) -> dict[str, str]:
    """What `whichrank env` would set, without what is set already; how the job communicates only if asked."""
    found = environment(purpose, out=str(out), environ=environ).settings
    return {s.name: s.value for s in found if network or _OBSERVES.search(s.name)}


def job_environment(environ: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """What the job is started with."""
    return {**{name: value for name, value in environ.items() if name not in SECRETS}, **added}


class Job:
    """The command, running."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], streams: Streams | None = None) -> None:
        self.streams = streams or Streams()
        self.asked_to_end = False
        self.ended_by_us = False
        self.repeats = False
        self.passes_on: Callable[[int, int], bool] = lambda _number, _sender: True
        """Told of every signal and its sender; whether the command is to hear of it too."""
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
        try:
            self.process = subprocess.Popen(  # noqa: S603 - the user's own command
                list(command),
                env=job_environment(os.environ, variables),
                stdout=self.streams.stdout,
                stderr=self.streams.stderr,
                preexec_fn=self._unblock,  # noqa: PLW1509 - no thread has been started yet
            )
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
            raise UsageError(
                f"can't start '{command[0]}': {error.strerror}", "Is it installed, and on the path?"
            ) from error
        self.streams.handed_over()

    def _unblock(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def wait(self) -> int:
        """Pass signals on until the command has ended; its code, negative for a signal."""
        while self.process.poll() is None:
            heard = signal.sigtimedwait({*FORWARDED, signal.SIGCHLD}, 1.0)
            if heard is None or heard.si_signo == signal.SIGCHLD:
                continue
            if heard.si_signo == signal.SIGWINCH:
                self._resize(by_terminal=heard.si_code == SI_KERNEL)
                continue
            self.asked_to_end = self.asked_to_end or heard.si_signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if self.passes_on(heard.si_signo, heard.si_pid) and heard.si_code != SI_KERNEL:
                self.tell(heard.si_signo)
        return self.process.returncode

    def _resize(self, *, by_terminal: bool) -> None:
        """The window has another size. The terminal tells the job too, but before its own terminal has that size."""
        self.streams.resize()
        if not by_terminal:
            self.tell(signal.SIGWINCH)
        elif self.streams.terminal:
            for pid in (self.process.pid, *processes.below(self.process.pid, processes.everybody())):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGWINCH)

    def tell(self, number: int) -> None:
        """Send a signal to the command, which is ours until it has been waited for."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)

    def release(self, *, unless: bool = False) -> None:
        """Signals reach this process again as before; not yet where a scheduler may repeat the one that ended it."""
        if unless:
            self.repeats = True
            return
        while self.repeats and signal.sigtimedwait(FORWARDED, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
