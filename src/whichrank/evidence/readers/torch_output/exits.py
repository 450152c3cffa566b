"""Lines of those who saw a process end: the elastic agent, launchers and schedulers."""

from __future__ import annotations

import re

from whichrank.evidence.readers.torch_output.found import Found, Matcher, number_list
from whichrank.evidence.readers.torch_output.process import signal_number
from whichrank.facts.shapes import LAUNCHED
from whichrank.records.log import Value

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


def _exit_of(by: str, code: int | None, number: int | None) -> dict[str, Value]:
    data: dict[str, Value] = {"by": by}
    if code is not None:
        data["exitcode"] = code
        number = -code if code < 0 else number
    if number is not None:
        data["signal"] = number
    return data


def _agent_failed(text: str) -> Found | None:
    match = _FAILED.search(text)
    if match is None:
        return None
    found = Found("process_exit", _exit_of("elastic", int(match[1]), None))
    found.local_rank = int(match[2]) if match[2] else None
    found.pid = int(match[3]) if match[3] else None
    return found


def _agent_signal(text: str) -> Found | None:
    data: dict[str, Value]
    if match := _CLOSING.search(text):
        data = {"what": "closing", "target_pid": int(match[1]), "signal": match[2]}
    elif match := _DEATH.search(text):
        data = {"what": "death", "signal": match[1].strip()}
    elif match := _GOT.search(text):
        data = {"what": "got", "target_pid": int(match[1]), "signal": match[2]}
    elif match := _FORCED.search(text):
        data = {"what": "forced", "target_pid": int(match[1]), "signal": match[2]}
    elif match := re.search(r"Killing subprocess (\d{1,10})", text):
        data = {"what": "closing", "target_pid": int(match[1]), "signal": "SIGTERM"}
    else:
        return None
    number = signal_number(str(data["signal"]))
    return Found("elastic_signal", data | ({"signal_number": number} if number is not None else {}))


def _restart(text: str) -> Found | None:
    match = _RESTART.search(text)
    return Found("elastic_restart", {"attempts_left": int(match[1])}) if match else None


def _spawned(text: str) -> Found | None:
    match = _SPAWN.search(text)
    if match is None:
        return None
    code = int(match[3]) if match[3] else None
    found = Found("process_exit", _exit_of("spawn", code, signal_number(match[2]) if match[2] else None))
    found.local_rank = int(match[1])
    return found


def _slurm(text: str) -> Found | None:
    if match := _CANCELLED.search(text):
        reason = match[2].strip() or "cancelled"
        return Found("job_ended", {"reason": reason, "by": "slurm"}, host=match[1])
    if "oom_kill" in text or "oom-kill" in text:
        return Found("host_out_of_memory", {"by": "slurm", "reason": text[:300].strip()})
    match = _SRUN.search(text)
    if match is None:
        return None
    code = _EXIT_CODE.search(match[3])
    # Slurm's word for a task that the kernel's out-of-memory killer ended.
    number = 9 if match[3].startswith("Out Of Memory") else signal_number(match[3])
    data = _exit_of("slurm", int(code[1]) if code else None, None if code else number)
    data |= {"tasks": number_list(match[2]), "reason": match[3].strip()}
    return Found("process_exit", data, host=match[1])


def _mpi(text: str) -> Found | None:
    match = _MPI_EXIT.search(text)
    if match is None:
        return None
    data = _exit_of("mpi", None, int(match[4]))
    return Found("process_exit", data, rank=int(match[1]), pid=int(match[2]), host=match[3])


def _deepspeed(text: str) -> Found | None:
    match = _DEEPSPEED_EXIT.search(text)
    if match is None:
        return None
    return Found("process_exit", _exit_of("deepspeed", int(match[2]), None), pid=int(match[1]) if match[1] else None)


def _died_with(text: str) -> Found | None:
    """A launcher's exception for a worker that a signal ended; of other commands (compilers, say) nothing is told."""
    match = _DIED_WITH.search(text)
    if match is None or not LAUNCHED.search(text):
        return None
    return Found("process_exit", _exit_of("subprocess", None, int(match[1] or match[2])))


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
    ("exited on signal", _mpi),
    (" exits with ", _deepspeed),
    (" died with ", _died_with),
)
