"""Lines of processes that fail or end: DDP, CUDA, crashes, the elastic agent, launchers and schedulers."""

from __future__ import annotations

import re

from whichrank.evidence.readers._found import Found, Matcher, Read, number_list
from whichrank.records.log import Value

_GRAD_INDICES = re.compile(r"indices which did not receive grad for rank (\d{1,7}): ([\d ]{1,8000})")
_GRAD_NAMES = re.compile(r"Parameters which did not receive grad for rank (\d{1,7}): (.{1,8000})")
_TWICE = re.compile(r"Parameter at index (\d{1,9})(?: with name (\S{1,500}))? has been marked as ready twice")
_SHAPES = re.compile(r"\[(\d{1,7})\]: params\[(\d{1,9})\] in this process with sizes \[([\d, ]{0,500})\]")
_COUNTS = re.compile(r"Rank (\d{1,7}) has (\d{1,9}) params, while rank (\d{1,7}) has inconsistent (\d{1,9})")
_SIZE = r"([\d.]{1,20}) ([KMGT]?i?B|bytes)"
_MEMORY = {
    "tried_bytes": re.compile(rf"Tried to allocate {_SIZE}"),
    "total_bytes": re.compile(rf"total capacity of {_SIZE}"),
    "free_bytes": re.compile(rf"of which {_SIZE} is free"),
    "allocated_bytes": re.compile(rf"{_SIZE} is allocated by PyTorch"),
}
# torch before 2.1: "(GPU 0; 79.15 GiB total capacity; 77.02 GiB already allocated; 12.00 MiB free; …".
_MEMORY_OLD = {
    "total_bytes": re.compile(rf"{_SIZE} total capacity"),
    "allocated_bytes": re.compile(rf"{_SIZE} already allocated"),
    "free_bytes": re.compile(rf"{_SIZE} free"),
}
_UNITS = {"B": 0, "bytes": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "KB": 1, "MB": 2, "GB": 3, "TB": 4}
_GPU = re.compile(r"GPU (\d{1,4})(?: has|;)")
_DEVICE_ERROR = re.compile(r"(?:CUDA|HIP) error: (.{1,200}?)(?:\s*$|\. |, NCCL)")
_DEVICE_ERRORS = {
    "device-side assert": "device_assert",
    "illegal memory access": "illegal_access",
    "uncorrectable ECC": "ecc",
    "unspecified launch failure": "launch_failure",
    "invalid device ordinal": "invalid_device",
    "misaligned address": "misaligned_address",
    "out of memory": "out_of_memory",
    "launch timed out": "launch_timeout",
    "no CUDA-capable device": "no_device",
    "no CUDA GPUs are available": "no_device",
    "busy or unavailable": "device_busy",
    "no kernel image": "no_kernel_image",
}
_ASSERT_LINE = re.compile(
    r"(\S{1,300}\.(?:cu|cuh|h|hip)):(\d{1,7}): .{0,200}?block: \[[\d,]{1,40}\], thread: \[[\d,]{1,40}\] "
    r"Assertion `(.{1,400}?)` failed"
)
_MATH_LIBRARY = re.compile(r"(CUBLAS_STATUS_\w{1,60}|CUDNN_STATUS_\w{1,60}|CUSOLVER_STATUS_\w{1,60})")
_SIGNALS = {
    "Segmentation fault": 11, "Segfault encountered": 11, "SIGSEGV": 11, "Bus error": 7, "SIGBUS": 7,
    "Aborted": 6, "SIGABRT": 6, "Floating point exception": 8, "Illegal instruction": 4, "Killed": 9,
    "SIGKILL": 9, "SIGTERM": 15, "Terminated": 15, "SIGINT": 2, "SIGHUP": 1, "SIGFPE": 8, "SIGILL": 4,
}  # fmt: skip
_HEAP = re.compile(
    r"^(?:double free or corruption|free\(\): |malloc\(\): |corrupted (?:size|double)|munmap_chunk\(\): )"
)
_WORKER = re.compile(
    r"DataLoader worker \(pid\(?s?\)? ?([\d, ]{1,400})\) "
    r"(?:is killed by signal: ([A-Za-z ]{1,40})|exited unexpectedly(?: with exit code (-?\d{1,9}))?)"
)
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
_DEEPSPEED_EXIT = re.compile(r"Process (\d{1,10}) exits with (?:return ?code|exitcode) ?[=:] ?(-?\d{1,9})")
_KILLED_SHELL = re.compile(
    r"^(?:.{0,200}: line \d{1,9}: {1,8}(\d{1,10}) )?(Killed|Aborted|Segmentation fault|Bus error|Terminated)"
    r"(?: {1,8}\(core dumped\))?(?:  .{0,500})?$"
)


def _unused(text: str) -> Found | None:
    if match := _GRAD_INDICES.search(text):
        data: dict[str, Value] = {"what": "unused_indices", "indices": number_list(match[2])}
        return Found("ddp_error", data, group_rank=int(match[1]))
    if match := _GRAD_NAMES.search(text):
        names = [name.strip() for name in match[2].split(",") if name.strip()]
        return Found("ddp_error", {"what": "unused_names", "names": names[:1000]}, group_rank=int(match[1]))
    return None


def _twice(text: str) -> Found:
    data: dict[str, Value] = {"what": "marked_twice"}
    if match := _TWICE.search(text):
        data |= {"index": int(match[1]), "name": match[2] or ""}
    return Found("ddp_error", data)


def _param_shape(text: str) -> Found | None:
    match = _SHAPES.search(text)
    if match is None:
        return None
    data: dict[str, Value] = {"what": "param_shape", "index": int(match[2]), "sizes": match[3]}
    return Found("ddp_error", data, group_rank=int(match[1]))


def _param_count(text: str) -> Found | None:
    match = _COUNTS.search(text)
    if match is None:
        return None
    ranks, counts = [int(match[1]), int(match[3])], [int(match[2]), int(match[4])]
    return Found("ddp_error", {"what": "param_count", "ranks": ranks, "counts": counts})


def _out_of_memory(text: str) -> Found:
    data: dict[str, Value] = {"what": "out_of_memory", "reason": text[:600].strip()}
    for key, pattern in [*_MEMORY.items(), *_MEMORY_OLD.items()]:
        if key not in data and (match := pattern.search(text)):
            try:
                data[key] = int(float(match[1]) * 1024 ** _UNITS.get(match[2], 0))
            except ValueError:
                continue
    if gpu := _GPU.search(text):
        data["gpu"] = int(gpu[1])
    return Found("cuda_error", data)


def _device_error(text: str) -> Found | None:
    match = _DEVICE_ERROR.search(text)
    if match is None:
        return None
    what = next((slug for words, slug in _DEVICE_ERRORS.items() if words in match[1]), "other")
    return Found("cuda_error", {"what": what, "reason": match[1]})


def _assert_line(text: str) -> Found | None:
    match = _ASSERT_LINE.search(text)
    if match is None:
        return None
    data: dict[str, Value] = {"what": "assert_line", "file": match[1], "at": int(match[2])}
    data["reason"] = match[3]
    return Found("cuda_error", data)


def _math_library(text: str) -> Found | None:
    match = _MATH_LIBRARY.search(text)
    return Found("cuda_error", {"what": "library", "reason": match[1]}) if match else None


def signal_number(words: str) -> int | None:
    """`Killed`, `SIGKILL`, `Signals.SIGTERM`, `9` as a number."""
    if words.isdecimal() and len(words) <= 3:
        return int(words)
    return next((number for name, number in _SIGNALS.items() if name in words), None)


def _crash(what: str) -> Read:
    def read(text: str) -> Found:
        data: dict[str, Value] = {"what": what, "reason": text[:400].strip()}
        number = signal_number(text)
        if number is not None:
            data["signal"] = number
        return Found("native_crash", data)

    return read


def _shell(text: str) -> Found | None:
    """`Killed` and the like as a shell prints it: the whole line, or after its own place."""
    match = _KILLED_SHELL.match(text.strip())
    if match is None:
        return None
    data: dict[str, Value] = {"what": "shell", "reason": match[2]}
    if (number := signal_number(match[2])) is not None:
        data["signal"] = number
    return Found("native_crash", data, pid=int(match[1]) if match[1] else None)


def _heap(text: str) -> Found | None:
    return _crash("heap")(text) if _HEAP.match(text) else None


def _worker_died(text: str) -> Found | None:
    match = _WORKER.search(text)
    if match is None:
        return None
    data: dict[str, Value] = {"worker_pids": number_list(match[1])}
    if match[2]:
        number = signal_number(match[2])
        data |= {"reason": match[2]} | ({"signal": number} if number is not None else {})
    if match[3]:
        data["exitcode"] = int(match[3])
    return Found("dataloader_worker_died", data)


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
    data = _exit_of("slurm", int(code[1]) if code else None, None if code else signal_number(match[3]))
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
    return Found("process_exit", _exit_of("deepspeed", int(match[2]), None), pid=int(match[1]))


MATCHERS: tuple[Matcher, ...] = (
    ("Expected to have finished reduction", lambda _: Found("ddp_error", {"what": "unused"})),
    ("did not receive grad for rank", _unused),
    ("to mark a variable ready only once", _twice),
    ("appears not to match", _param_shape),
    ("DDP expects same model", _param_count),
    ("CUDA out of memory", _out_of_memory),
    ("HIP out of memory", _out_of_memory),
    ("CUDA error: ", _device_error),
    ("HIP error: ", _device_error),
    ("Assertion `", _assert_line),
    ("_STATUS_", _math_library),
    ("Fatal Python error", _crash("python")),
    ("terminate called", _crash("terminate")),
    ("Segfault encountered", _crash("c10")),
    ("*** SIG", _crash("handler")),
    ("Process received signal", _crash("mpi")),
    ("Killed", _shell),
    ("Aborted", _shell),
    ("Segmentation fault", _shell),
    ("Bus error", _shell),
    ("corrupt", _heap),
    ("free(): ", _heap),
    ("malloc(): ", _heap),
    ("munmap_chunk(): ", _heap),
    ("DataLoader worker", _worker_died),
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
)
