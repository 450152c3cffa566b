"""Python exceptions told apart: a rank's own, those that name a known cause, and those that only tell of a loss."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from whichrank.facts.messages import names_a_cause
from whichrank.facts.shapes import LAUNCHED
from whichrank.records.events.base import Event
from whichrank.records.events.communication import GlooTimeout, NcclError, PeerClosed
from whichrank.records.events.launchers import ElasticFailure, ElasticSignal, JobEnded, ProcessExit
from whichrank.records.events.processes import CudaError, NativeCrash, Traceback
from whichrank.records.events.watchdog import WatchdogTimeout
from whichrank.timeline.job_state.statements import Statement, statement, survived

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

Nature = Literal["own", "known", "loss", "ended", "launcher", "unclear"]

_ENDED = ("KeyboardInterrupt", "SystemExit", "SignalException", "GeneratorExit")
_LAUNCHER = (
    "ChildFailedError", "ProcessRaisedException", "ProcessExitedException", "CalledProcessError", "ActorDiedError",
    "RayActorError", "WorkerCrashedError", "RayTaskError", "TrainingFailedError",
)  # fmt: skip
_LOSS_TYPES = (
    "DistBackendError", "DistNetworkError", "DistStoreError", "DistError", "DistQueueEmptyError",
    "ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError", "BrokenPipeError", "EOFError",
)  # fmt: skip
_PLAIN_LOSS = ("ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError", "EOFError", "TimeoutError")
"""Types that may as well come from a download: what is raised from them may be the rank's own trouble."""
_LOSS_WORDS = (
    "gloo/transport", "Connection closed by", "Connection reset by peer", "NCCL error", "NCCL Error",
    "NCCL communicator was aborted", "ncclRemoteError", "ncclSystemError", "ncclInternalError", "Watchdog caught",
    "NCCL operation timed out", "timed out in blocking wait", "client socket has", "wait timeout after",
    "waiting for clients", "Socket Timeout", "store based barrier", "store_based_barrier", "Failed to recv",
    "Connection was likely closed", "Broken pipe", "monitoredBarrier", "Timed out waiting", "ncclUniqueId",
    "Stop_waiting response is expected", "connectFullMesh", "Timed out initializing process group", "TCPStore",
    "rendezvous", "timeout caused pair closure", "Horovod has been shut down",
)  # fmt: skip
_KNOWN_WORDS = (
    "out of memory", "CUDA error:", "HIP error:", "cuda runtime error (", "device-side assert",
    "DataLoader worker (pid", "DataLoader worker(s)", "Expected to have finished reduction",
    "were not used in producing the loss",
    "Detected mismatch between collectives", "EADDRINUSE", "Address already in use", "Too many open files",
    "received 0 items of ancdata", "No space left on device", "Disk quota exceeded",
    "unable to open shared memory object", "unable to mmap",
    "insufficient shared memory", "Name or service not known", "name resolution", "gai error",
    "expected, but not set", "exhausted inputs", "No CUDA GPUs are available", "Found no NVIDIA driver",
    "no GPUs found!",
    "driver on your system is too old", "Driver/library version mismatch", "Invalid device id",
    "Attempting to deserialize object on CUDA device", "Duplicate GPU detected", "appears not to match",
    "DDP expects same model", "Unable to find address for", "DefaultCPUAllocator", "Cannot allocate memory",
    "Invalid value for environment variable", "Received data size doesn't match", "whichrank guard: ranks differ in",
)  # fmt: skip
_CHECKS = ("check_ddp_consistency", "_check_grad_norms")
"""Functions of trainers that compare the ranks: what they raise is told by the rule on what differs."""
NOT_FINITE = re.compile(r"(?i)(?<![\w.])(?:nan|inf|non-?finite|not finite)(?![\w.])")
_REDUCED = re.compile(r"(?i)\b(?:grad(?:ient)?s?[ _]?norm|gnorm|norm of (?:the )?gradients?)\b")
_TRAINED = re.compile(r"(?i)loss|grad|norm|weights?\b|param|logits|activation")
_CARRIED = re.compile(r"Caught \w{1,60} in (?:DataLoader worker process|pin memory thread|replica)\b")
"""torch raises the exception of another process or thread again; the original follows below it."""
_OF_RANKS = re.compile(r"\branks: ?(?:dict_keys\()?\[(\d{1,7}(?:, ?\d{1,7}){0,4095})\]")
"""How torch's distributed checkpoint says who failed: `CheckpointException ranks:dict_keys([4, 5])`."""
_CUT_SHORT, _NOT_WRITTEN = "PytorchStreamReader failed", "torch-writer-failed"
_ORIGINAL_LINES = 400
_NEXT = 256
"""Exceptions of other ranks that may stand between in one file."""
_ERRNO = (
    "Connection timed out", "Connection refused", "No route to host", "Network is unreachable", "connect() timed out",
    "Connection reset by peer", "Socket Timeout",
)  # fmt: skip
# CUDA errors of which no rule on text speaks are the exception of the rank that has them.
_UNCLAIMED_CUDA = ("device_busy", "launch_timeout", "other", "library")


def short_type(event: Event) -> str:
    """The class of the exception without its package."""
    return event.short_type if isinstance(event, Traceback) else ""


def at_the_store(event: Event) -> bool:
    """Whether torch raised it while it connected to its store: older versions tell errno's words and no more."""
    inner = event.frames[-1] if event.frames else None
    makes_store = inner is not None and (
        inner.file.endswith("distributed/rendezvous.py") or inner.function == "_create_tcp_store"
    )
    return makes_store and isinstance(event, Traceback) and event.message.startswith(_ERRNO)


def nature(event: Event) -> Nature:
    """What kind of thing a traceback tells of."""
    name = short_type(event)
    if not name or not isinstance(event, Traceback):
        return "unclear"
    words = f"{event.type}: {event.message}"
    if name in _ENDED:
        return "ended"
    if name in _LAUNCHER and (name != "CalledProcessError" or LAUNCHED.search(words)):
        return "launcher"
    if (named := ranks_named(event)) and event.rank not in (None, *named):
        return "loss"
    if _is_known(event, name, words):
        return "known"
    if at_the_store(event):
        return "loss"
    if name in _LOSS_TYPES or name.startswith("Rendezvous") or any(phrase in words for phrase in _LOSS_WORDS):
        return "loss"
    return "own"


def ranks_named(event: Traceback) -> tuple[int, ...]:
    """The ranks that failed, where an exception is raised on all of them for some."""
    match = _OF_RANKS.search(event.message)
    return tuple(int(rank) for rank in match[1].split(",")) if match else ()


def _is_known(event: Event, name: str, words: str) -> bool:
    """Whether another rule tells what is behind it."""
    by_name = name in ("OutOfMemoryError", "MemoryError", "gaierror") or any(phrase in words for phrase in _KNOWN_WORDS)
    return by_name or any(frame.function in _CHECKS for frame in event.frames) or names_a_cause(words)


def own_exceptions(case: Case) -> list[Statement]:
    """Exceptions that a rank raised by itself: uncaught, on its main thread, and the first of each rank."""
    taken: list[Statement] = []
    before: dict[tuple[str, int | None], dict[str, Event]] = {}
    settled: set[tuple[str, int]] = set()
    losses = _first_losses(case)
    told = sorted(case.events(Traceback), key=lambda e: (e.ref.source, e.line))
    for number, event in enumerate(told):
        if _CARRIED.match(event.message) and _is_followed(told, number):
            continue
        earlier = before.setdefault((event.ref.source, event.rank), {})
        parent = earlier.get(event.chained_from)
        kind = nature(event)
        earlier[event.type] = event
        if event.ignored or event.thread or survived(case, event) or kind in ("ended", "launcher"):
            continue
        key = None if event.rank is None else (event.ref.source, event.rank)
        if key is not None and losses.get(key, event.line) < event.line:
            continue  # what a rank raises after it has lost its peers follows from that
        if key in settled or (parent is not None and not _raised_anew(parent, kind)):
            continue
        if kind == "own" and not _read_what_was_cut(case, event):
            taken.append(statement(case, event))
        if key is not None and not (kind == "loss" and short_type(event) in _PLAIN_LOSS):
            settled.add(key)
    return taken


def _read_what_was_cut(case: Case, event: Traceback) -> bool:
    """Whether a restart reads a checkpoint that could not be written to its end: that is why, not what it raises."""
    return _CUT_SHORT in event.message and bool(case.index.sightings.get(_NOT_WRITTEN))


def all_gave_up_on_nan(case: Case) -> list[Statement]:
    """What the ranks raised, where several did, or nobody in particular, and all say that a loss or a gradient is not
    finite; of a norm of the gradients it may be one rank, since all ranks have the same."""
    raised = own_exceptions(case)
    ranks = {sign.rank for sign in raised if sign.rank is not None}
    told = all(NOT_FINITE.search(sign.text) and _TRAINED.search(sign.text) for sign in raised)
    of_all = all(_REDUCED.search(sign.text) for sign in raised)
    return raised if told and (len(ranks) != 1 or of_all) else []


def lost_a_peer(case: Case) -> set[int]:
    """Ranks that tell of a peer that had gone."""
    raised = [event for event in case.events(Traceback) if nature(event) == "loss"]
    return {event.rank for event in (*case.events(PeerClosed), *raised) if event.rank is not None}


def _is_followed(told: list[Traceback], number: int) -> bool:
    """Whether the next exception of the same rank stands close behind this one."""
    event = told[number]
    near = told[number + 1 : number + 1 + _NEXT]
    close = (e for e in near if (e.ref.source, e.rank) == (event.ref.source, event.rank))
    following = next(close, None)
    return following is not None and following.line - event.line < _ORIGINAL_LINES


def _first_losses(case: Case) -> dict[tuple[str, int], int]:
    """By file and rank, the line where the rank first tells that it timed out or lost a peer."""
    first: dict[tuple[str, int], int] = {}
    for event in case.events(WatchdogTimeout, NcclError, PeerClosed, GlooTimeout):
        if event.rank is not None:
            key = (event.ref.source, event.rank)
            first[key] = min(event.line, first.get(key, event.line))
    return first


def _raised_anew(parent: Event, kind: Nature) -> bool:
    """Whether an exception raised while another was handled is the one to tell: a failed download is."""
    return kind == "own" and nature(parent) == "loss" and short_type(parent) in _PLAIN_LOSS


def agent_had_workers(case: Case) -> bool:
    """Whether an elastic agent failed while it looked after its workers: then the rendezvous had been reached."""
    names = {s.signature for s in case.sightings}
    stopped = any(event.what == "closing" for event in case.events(ElasticSignal))
    return "frame-agent-asks-store" in names or ("agent-heartbeat-failed" in names and stopped)


def any_raised(case: Case) -> bool:
    """Whether any rank's exception, of whatever nature, is at hand."""
    return any(nature(event) not in ("ended", "launcher") for event in case.events(Traceback, CudaError))


def unclaimed_cuda_errors(case: Case) -> list[Statement]:
    """CUDA errors whose text names no cause of its own."""
    found = [e for e in case.events(CudaError) if e.what in _UNCLAIMED_CUDA]
    return [
        statement(case, event)
        for event in found
        if not survived(case, event) and "driver version" not in event.reason and not names_a_cause(event.ref.quote)
    ]


def only_logged(case: Case) -> bool:
    """Whether loggers wrote all that was raised, and nothing shows that a process ended: it may have been caught, in a
    log that was cut behind it."""
    raised = [event for event in case.events(Traceback) if not event.ignored and event.type]
    logged = {event.type for event in raised if event.logged}
    if not logged or any(event.type not in logged for event in raised):
        return False
    return not case.events(ElasticFailure, ProcessExit, JobEnded, NativeCrash, WatchdogTimeout)
