"""Lines of those who saw a process end: the elastic agent, launchers and schedulers."""

from __future__ import annotations

import re

from whichrank.evidence.readers.torch_output.found import Matcher, number_list
from whichrank.evidence.readers.torch_output.process import signal_number
from whichrank.facts.shapes import LAUNCHED
from whichrank.records.events.base import Event
from whichrank.records.events.launchers import ElasticRestart, ElasticSignal, HostOutOfMemory, JobEnded, ProcessExit

_FAILED = re.compile(r"failed \(exitcode: (-?\d{1,9})\)(?: local_rank: (\d{1,7}))?(?: \(pid: (\d{1,10})\))?")
_CLOSING = re.compile(r"Sending process (\d{1,10}) closing signal (\w{1,20})")
_DEATH = re.compile(r"Received (\S{1,40}?:? ?\S{0,12}) death signal")
_GOT = re.compile(r"Process (\d{1,10}) got signal: (\d{1,3})")
_FORCED = re.compile(r"Unable to shutdown process (\d{1,10}) via \S{1,20}?,? forcefully exiting via (\S{1,20})")
_RESTART = re.compile(r"(\d{1,9})/(\d{1,9}) attempts left")
_SPAWN = re.compile(
    r"[Pp]rocess (\d{1,7}) terminated with (?:signal (\w{1,20})|exit code (-?\d{1,9})|the following error)"
)
_SRUN = re.compile(r"(?:srun|slurmstepd): error: ([\w.-]{1,253}): tasks? ([\d,-]{1,2000}): (.{1,200})")
_EXIT_CODE = re.compile(r"exit code (-?\d{1,9})")
_CANCELLED = re.compile(
    r"\*\*\* (?:JOB|STEP) \S{1,60} ON ([\w.,\[\]-]{1,253}) CANCELLED AT \S{1,40}(.{0,120}?) ?\*\*\*"
)
_MPI_EXIT = re.compile(r"process rank (\d{1,7}) with PID (\d{1,10}) on node ([\w.-]{1,253}) exited on signal (\d{1,3})")
# The launcher tells the code of the first that failed, but the command of the last that it started.
_DEEPSPEED_EXIT = re.compile(r"(?:Process (\d{1,10})|\]) exits with (?:return ?code|exitcode) ?[=:] ?(-?\d{1,9})")
_DIED_WITH = re.compile(r" died with (?:<Signals\.SIG\w{1,12}: (\d{1,3})>|unknown signal (\d{1,3}))")

WRAPPED = "exited on"
"""Behind it Open MPI 5 begins a new line, in which the signal stands."""


def _exit(by: str, code: str | None, number: int | None = None, pid: str | None = None) -> ProcessExit:
    exitcode = int(code) if code else None
    signal = -exitcode if exitcode is not None and exitcode < 0 else number
    return ProcessExit(by=by, exitcode=exitcode, signal=signal, pid=int(pid) if pid else None)


def _agent_failed(text: str) -> Event | None:
    match = _FAILED.search(text)
    if match is None:
        return None
    event = _exit("elastic", match[1], pid=match[3])
    event.local_rank = int(match[2]) if match[2] else None
    return event


def _agent_signal(text: str) -> Event | None:
    if match := _CLOSING.search(text):
        return _signal("closing", match[2], match[1])
    if match := _DEATH.search(text):
        return _signal("death", match[1].strip())
    if match := _GOT.search(text):
        return _signal("got", match[2], match[1])
    if match := _FORCED.search(text):
        return _signal("forced", match[2], match[1])
    match = re.search(r"Killing subprocess (\d{1,10})", text)
    return _signal("closing", "SIGTERM", match[1]) if match else None


def _signal(what: str, signal: str, pid: str = "") -> Event:
    target = int(pid) if pid else None
    return ElasticSignal(what=what, target_pid=target, signal=signal, signal_number=signal_number(signal))


def _restart(text: str) -> Event | None:
    match = _RESTART.search(text)
    return ElasticRestart(attempts_left=int(match[1])) if match else None


def _spawned(text: str) -> Event | None:
    match = _SPAWN.search(text)
    if match is None:
        return None
    event = _exit("spawn", match[3], signal_number(match[2]) if match[2] else None)
    event.local_rank = int(match[1])
    return event


def _slurm(text: str) -> Event | None:
    if match := _CANCELLED.search(text):
        reason = match[2].strip() or "cancelled"
        return JobEnded(reason=reason, by="slurm", teller=match[1])
    if "oom_kill" in text or "oom-kill" in text:
        return HostOutOfMemory(by="slurm", reason=text[:300].strip())
    match = _SRUN.search(text)
    if match is None:
        return None
    code = _EXIT_CODE.search(match[3])
    # Slurm's word for a task that the kernel's out-of-memory killer ended.
    number = 9 if match[3].startswith("Out Of Memory") else signal_number(match[3])
    event = _exit("slurm", code[1] if code else None, None if code else number)
    event.tasks, event.reason, event.host = number_list(match[2]), match[3].strip(), match[1]
    return event


def _mpi(text: str) -> Event | None:
    match = _MPI_EXIT.search(text)
    if match is None:
        return None
    event = _exit("mpi", None, int(match[4]), pid=match[2].lstrip("0"))
    event.rank, event.host = int(match[1]), match[3]
    return event


def _deepspeed(text: str) -> Event | None:
    match = _DEEPSPEED_EXIT.search(text)
    return _exit("deepspeed", match[2], pid=match[1]) if match else None


def _died_with(text: str) -> Event | None:
    """A launcher's exception for a worker that a signal ended; of other commands (compilers, say) nothing is told."""
    match = _DIED_WITH.search(text)
    if match is None or not LAUNCHED.search(text):
        return None
    return _exit("subprocess", None, int(match[1] or match[2]))


MATCHERS: tuple[Matcher, ...] = (
    ("failed (exitcode: ", _agent_failed),
    ("Sending process ", _agent_signal),
    (" death signal", _agent_signal),
    ("got signal: ", _agent_signal),
    ("forcefully exiting via", _agent_signal),
    ("Killing subprocess", _agent_signal),
    ("attempts left", _restart),
    ("terminated with", _spawned),
    ("error: ", _slurm),
    (WRAPPED, _mpi),
    (" exits with ", _deepspeed),
    (" died with ", _died_with),
)
