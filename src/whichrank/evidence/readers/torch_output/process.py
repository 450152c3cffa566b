"""Lines of processes that fail: DDP, CUDA, crashes, workers that load data."""

from __future__ import annotations

import re
from collections.abc import Sequence

from whichrank.evidence.readers.torch_output.found import Matcher, Read, number_after, number_list
from whichrank.records.events.base import Event
from whichrank.records.events.processes import CudaError, DataloaderWorkerDied, DdpError, NativeCrash
from whichrank.records.events.run_state import CheckpointLoad

_GRAD_INDICES = re.compile(r"indices which did not receive grad for rank (\d{1,7}): ([\d ]{1,8000})")
_GRAD_NAMES = re.compile(r"Parameters which did not receive grad for rank (\d{1,7}): (.{1,8000})")
_TWICE = re.compile(r"Parameter at index (\d{1,9})(?: with name (\S{1,500}))? has been marked as ready twice")
_SHAPES = re.compile(r"\[(\d{1,7})\]: params\[(\d{1,9})\] in this process with sizes \[([\d, ]{0,500})\]")
_COUNTS = re.compile(r"Rank (\d{1,7}) has (\d{1,20}) params, while rank (\d{1,7}) has inconsistent (\d{1,20})")
_SIZE = r"([\d.]{1,20}) ([KMGT]?i?B|bytes)"
_TRIED = (re.compile(rf"Tried to allocate {_SIZE}"),)
# The second: torch before 2.1, "(GPU 0; 79.15 GiB total capacity; 77.02 GiB already allocated; 12.00 MiB free; …".
_TOTAL = (re.compile(rf"total capacity of {_SIZE}"), re.compile(rf"{_SIZE} total capacity"))
_FREE = (re.compile(rf"of which {_SIZE} is free"), re.compile(rf"{_SIZE} free"))
_ALLOCATED = (re.compile(rf"{_SIZE} is allocated by PyTorch"), re.compile(rf"{_SIZE} already allocated"))
_UNITS = {"B": 0, "bytes": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "KB": 1, "MB": 2, "GB": 3, "TB": 4}
_GPU = re.compile(r"GPU (\d{1,4})(?: has|;)")
# torch 1.x has its own words for it: once on stderr, then in the exception, with the place behind it.
_DEVICE_ERROR = re.compile(
    r"(?:(?:CUDA|HIP) error: |cuda runtime error \(\d{1,4}\) : "
    r"|THCudaCheck FAIL file=\S{1,300} line=\d{1,7} error=\d{1,4} : |Test CUDA failure \S{1,120}:\d{1,7} ')"
    r"(.{1,200}?)(?:'?\s*$|\. |, NCCL| at \S{1,300}:\d{1,7})"
)
_DEVICE_ERRORS = {
    "device-side assert": "device_assert",
    "illegal memory access": "illegal_access",
    "uncorrectable ECC": "ecc",
    "ECC failure": "ecc",
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
# ROCm's run time: "… GPU node-3 (Agent handle: 0x…) on address 0x…. Reason: Page not present …".
_GPU_NODE = re.compile(
    r"Memory access fault by GPU node-(\d{1,4}).{0,80}? on address \S{1,40}?\.? {1,4}Reason: ([^.]{1,120})"
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
# Open MPI's handler: "[host:pid] Signal: Segmentation fault (11)"; some systems add the number to the name.
_MPI_SIGNAL = re.compile(
    r"\[([\w.-]{1,253}):(\d{1,10})\] Signal: [A-Za-z][A-Za-z /]{0,40}(?:: \d{1,3})? \((\d{1,3})\)\s*$"
)
# UCX's: "[host:pid:0:tid] Caught signal 11 (Segmentation fault: address not mapped …)".
_UCX_SIGNAL = re.compile(
    r"\[([\w.-]{1,253}):(\d{1,10}) {0,4}:\d{1,6}:\d{1,10}\] Caught signal (\d{1,3}) \((?!Bus error: nonexistent)"
)
_KILLED_SHELL = re.compile(
    r"^(?:.{0,200}: line \d{1,9}: {1,8}(\d{1,10}) )?(Killed|Aborted|Segmentation fault|Bus error|Terminated)"
    r"(?: {0,8}\(core dumped\))?(?:  .{0,500})?$"
)
_BAR = re.compile(
    r"\d/\d{1,12} \[[^\]]{1,400}\](?=(?:Killed|Aborted|Segmentation fault|Bus error|Terminated)[^\]]{0,40}$)"
)


def _unused(text: str) -> Event | None:
    if match := _GRAD_INDICES.search(text):
        return DdpError(what="unused_indices", indices=number_list(match[2]), group_rank=int(match[1]))
    if match := _GRAD_NAMES.search(text):
        names = [name.strip() for name in match[2].split(",") if name.strip()]
        return DdpError(what="unused_names", names=tuple(names[:1000]), group_rank=int(match[1]))
    return None


def _twice(text: str) -> Event:
    event = DdpError(what="marked_twice")
    if match := _TWICE.search(text):
        event.index, event.name = int(match[1]), match[2] or ""
    return event


def _param_shape(text: str) -> Event | None:
    match = _SHAPES.search(text)
    if match is None:
        return None
    return DdpError(what="param_shape", index=int(match[2]), sizes=match[3], group_rank=int(match[1]))


def _param_count(text: str) -> Event | None:
    match = _COUNTS.search(text)
    if match is None:
        return None
    ranks, counts = (int(match[1]), int(match[3])), (int(match[2]), int(match[4]))
    return DdpError(what="param_count", ranks=ranks, counts=counts)


def _out_of_memory(text: str) -> Event:
    return CudaError(
        what="out_of_memory",
        reason=text[:600].strip(),
        tried_bytes=_bytes(text, _TRIED),
        total_bytes=_bytes(text, _TOTAL),
        free_bytes=_bytes(text, _FREE),
        allocated_bytes=_bytes(text, _ALLOCATED),
        gpu=number_after(text, _GPU),
    )


def _bytes(text: str, patterns: Sequence[re.Pattern[str]]) -> int | None:
    for pattern in patterns:
        if match := pattern.search(text):
            try:
                return int(float(match[1]) * 1024 ** _UNITS.get(match[2], 0))
            except ValueError:
                continue
    return None


def _device_error(text: str) -> Event | None:
    match = _DEVICE_ERROR.search(text)
    if match is None:
        return None
    what = next((slug for words, slug in _DEVICE_ERRORS.items() if words in match[1]), "other")
    return CudaError(what=what, reason=match[1])


def _assert_line(text: str) -> Event | None:
    match = _ASSERT_LINE.search(text)
    return CudaError(what="assert_line", file=match[1], at=int(match[2]), reason=match[3]) if match else None


def _gpu_node(text: str) -> Event | None:
    """A GPU of AMD met a page that it must not touch; some reasons are the hardware's."""
    match = _GPU_NODE.search(text)
    if match is None or "hang recovery" in match[2]:
        return None
    return CudaError(what="ecc" if "ECC" in match[2] else "illegal_access", reason=match[0])


def _math_library(text: str) -> Event | None:
    match = _MATH_LIBRARY.search(text)
    return CudaError(what="library", reason=match[1]) if match else None


def signal_number(words: str) -> int | None:
    """`Killed`, `SIGKILL`, `Signals.SIGTERM`, `9` as a number."""
    if words.isdecimal() and len(words) <= 3:
        return int(words)
    return next((number for name, number in _SIGNALS.items() if name in words), None)


def _crash(what: str) -> Read:
    return lambda text: NativeCrash(what=what, reason=text[:400].strip(), signal=signal_number(text))


def _shell(text: str) -> Event | None:
    """`Killed` and the like as a shell prints it: the whole line, after its own place, or behind a progress bar."""
    line = text.strip()
    bar = _BAR.search(line[-600:])
    match = _KILLED_SHELL.match(line[-600:][bar.end() :] if bar else line)
    if match is None:
        return None
    pid = int(match[1]) if match[1] else None
    return NativeCrash(what="shell", reason=match[2], signal=signal_number(match[2]), pid=pid)


def _mpi_signal(text: str) -> Event | None:
    match = _MPI_SIGNAL.search(text) or _UCX_SIGNAL.search(text)
    if match is None:
        return None
    return NativeCrash(what="mpi", reason=text.strip()[:300], signal=int(match[3]), pid=int(match[2]), host=match[1])


def _heap(text: str) -> Event | None:
    return _crash("heap")(text) if _HEAP.match(text) else None


def _worker_died(text: str) -> Event | None:
    match = _WORKER.search(text)
    if match is None:
        return None
    return DataloaderWorkerDied(
        worker_pids=number_list(match[1]),
        reason=match[2] or "",
        signal=signal_number(match[2]) if match[2] else None,
        exitcode=int(match[3]) if match[3] else None,
    )


_NO_CHECKPOINT = re.compile(
    r"skip checkpoint load|will not load any checkpoints?"
    r"|\b[Nn]o checkpoint found\b.{0,120}?(?:from scratch|from random|initiali[sz]|fresh|step 0\b)"
)
"""DeepSpeed, Megatron, and what scripts say."""
_CHECKPOINT = re.compile(
    r"\bloading checkpoint: \S|\bloaded checkpoint\b|\bsuccessfully loaded \S{0,200}(?:ckpt|checkpoint)"
    r"|\b[Rr]esum(?:ed|ing) (?:training )?from checkpoint\b"
)


def _checkpoint(text: str) -> Event | None:
    if _NO_CHECKPOINT.search(text):
        return CheckpointLoad(found=False)
    return CheckpointLoad() if _CHECKPOINT.search(text) else None


MATCHERS: tuple[Matcher, ...] = (
    ("skip checkpoint load", _checkpoint),
    ("not load any checkpoint", _checkpoint),
    ("o checkpoint found", _checkpoint),
    ("loading checkpoint: ", _checkpoint),
    ("loaded checkpoint", _checkpoint),
    ("successfully loaded ", _checkpoint),
    ("from checkpoint", _checkpoint),
    ("Expected to have finished reduction", lambda _: DdpError(what="unused")),
    ("did not receive grad for rank", _unused),
    ("to mark a variable ready only once", _twice),
    ("appears not to match", _param_shape),
    ("DDP expects same model", _param_count),
    ("CUDA out of memory", _out_of_memory),
    ("HIP out of memory", _out_of_memory),
    ("CUDA error: ", _device_error),
    ("HIP error: ", _device_error),
    ("cuda runtime error (", _device_error),
    ("THCudaCheck FAIL", _device_error),
    ("Test CUDA failure", _device_error),
    ("Memory access fault by GPU", _gpu_node),
    ("Assertion `", _assert_line),
    ("_STATUS_", _math_library),
    ("Fatal Python error", _crash("python")),
    ("terminate called", _crash("terminate")),
    ("Segfault encountered", _crash("c10")),
    ("*** SIG", _crash("handler")),
    ("Process received signal", _crash("mpi")),
    ("] Signal: ", _mpi_signal),
    ("] Caught signal ", _mpi_signal),
    ("Killed", _shell),
    ("Aborted", _shell),
    ("Segmentation fault", _shell),
    ("Bus error", _shell),
    ("corrupt", _heap),
    ("free(): ", _heap),
    ("malloc(): ", _heap),
    ("munmap_chunk(): ", _heap),
    ("DataLoader worker", _worker_died),
)
