"""Which events of a kernel log count in a case: when they happened, what they name, and how much they count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from whichrank.facts.hardware import xids
from whichrank.model.findings import Severity
from whichrank.records.events.base import Event
from whichrank.records.events.collectives import DesyncReport, MonitoredBarrierFailed, StallReport
from whichrank.records.events.communication import GlooTimeout, NcclError, PeerClosed
from whichrank.records.events.launchers import ActorDied, ElasticFailure, HostOutOfMemory, ProcessExit
from whichrank.records.events.processes import CudaError, DataloaderWorkerDied, NativeCrash, Traceback
from whichrank.records.events.startup import StoreError
from whichrank.records.events.watchdog import WatchdogStuck, WatchdogTerminated, WatchdogTimeout
from whichrank.records.hardware import KernelEvent, Value, address
from whichrank.timeline.case import Case
from whichrank.timeline.hardware import same_host
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state import deaths

_OLD_NS = 6 * 3600 * 10**9
"""Where nothing tells when the job ran, an event this much older than the end of its log is of another day's work."""
_TOGETHER_NS = 10 * 10**9
_FAILURES: tuple[type[Event], ...] = (
    WatchdogTimeout, WatchdogTerminated, WatchdogStuck, NcclError, CudaError, NativeCrash, PeerClosed, GlooTimeout,
    ElasticFailure, MonitoredBarrierFailed, DesyncReport, Traceback, StoreError, DataloaderWorkerDied, HostOutOfMemory,
    StallReport, ActorDied,
)  # fmt: skip
_PROGRAM_FAILED: tuple[type[Event], ...] = (
    CudaError, NativeCrash, ProcessExit, ElasticFailure, Traceback, NcclError,
)  # fmt: skip
_FROM_OUTSIDE = (2, 9, 15)
"""Signals by which people, launchers and the kernel end a process."""
_REFUSED = ("ncclInvalidUsage", "ncclInvalidArgument")
"""What NCCL says of a call that it does not begin."""
_GPU_WORDS = re.compile(r"cuda|cublas|cudnn|cufft|nccl|\bhip\b|\brccl\b|device-side", re.IGNORECASE)
_TRAINERS = (
    "python",
    "pt_main",
    "pt_elastic",
    "torchrun",
    "ray",
    "train",
    "pytorch",
    "deepspeed",
    "pt_data",
    "all_reduce",
)


class Weight(Struct, frozen=True):
    """What a statement is worth in this case."""

    severity: Severity
    less: int = 0
    """How many grades weaker it is than by itself."""


def has_job(case: Case) -> bool:
    """Whether there is evidence of the job itself, not of its hosts alone."""
    return bool(case.lineup or case.log_events or case.nccl or case.stacks or case.progress)


def failed(case: Case) -> bool:
    """Whether the job's own evidence shows a failure or a hang."""
    if any(not (isinstance(event, Traceback) and event.ignored) for event in case.events(*_FAILURES)):
        return True
    if any(event.signal not in (None, 15, 2) for event in case.events(ProcessExit)):
        return True
    return bool(case.troubles) or case.stands_still or any(process.warnings for process in case.nccl)


def weight_of_hang(case: Case) -> Weight:
    """That of what would hold a job up: less where there is a job and nothing of it shows that it failed or hangs."""
    return Weight("error") if failed(case) or not has_job(case) else Weight("warning", 1)


def failing_since_ns(case: Case) -> int | None:
    """When the first failure began, by the clocks of the ranks: who timed out had begun to wait as long before."""
    waited = ((e.time_ns, e.waited_ms) for e in case.events(*_FAILURES))
    return min((time_ns - ms * 10**6 for time_ns, ms in waited if time_ns), default=None)


def weigh(case: Case, event: KernelEvent) -> Weight:
    """How much an event of the kernel may accuse: an old one, or one of a job that ran well, nobody.

    An Xid that is not in the log itself but named by one that follows from it counts less."""
    whole = _weigh(case, event)
    return replace(whole, less=whole.less + 1) if _is_second_hand(event) else whole


def _weigh(case: Case, event: KernelEvent) -> Weight:
    when = case.hardware.when(event)
    if when in ("before", "after"):
        return Weight("info", 2)
    if has_job(case) and not failed(case):
        return Weight("warning", 1) if when == "during" and _grave(case, event) else Weight("info", 2)
    if when == "during":
        return Weight("error")
    if event.age_ns is not None and event.age_ns > _OLD_NS:
        return Weight("info", 2) if has_job(case) else Weight("warning", 1)
    return Weight("error")


def _grave(case: Case, event: KernelEvent) -> bool:
    """Whether a job cannot have gone on well after this, although its own evidence does not say so yet."""
    if event.kind in ("xid", "sxid"):
        return blame_of(event) in ("bus", "memory", "nvlink", "gpu")
    return event.kind == "gpu_lost" or case.hardware.rank_of(event.pid, event.host) is not None


def state_weight(case: Case) -> Weight:
    """The same for a state that was looked at once: it harms only a job that failed."""
    if has_job(case):
        return Weight("error") if failed(case) else Weight("info", 1)
    return Weight("warning")


def is_trainer(process: str) -> bool:
    """Whether a process name is one that training jobs have."""
    return process.lower().startswith(_TRAINERS)


# -- Xids


def blame_of(event: KernelEvent) -> xids.Blame:
    """Whom an Xid or SXid speaks of."""
    code = event.code
    if code is None or event.number("caused_by") is not None:
        return "consequence"
    fact = xids.sxid(code) if event.kind == "sxid" else xids.xid(code)
    if fact is None:
        return "gpu" if event.kind == "xid" else "nobody"
    if fact.severity == "varies" or event.kind == "sxid":  # then the line says whether it is fatal
        fatal = event.number("fatal")
        return "nobody" if fatal == 0 or (fatal is None and fact.blame == "nobody") else "nvlink"
    return fact.blame


def xid_events(case: Case, *blames: xids.Blame) -> list[KernelEvent]:
    """Xids that speak of these, without those that follow from an earlier one on the same GPU."""
    told = [e for e in case.hardware.of_kind("xid", "sxid") if not case.hardware.foreign(e.host, e.device)]
    told = [_cause_of(e, told) for e in told if not _of_another_job(case, e)]
    by_place: dict[tuple[str, int], list[KernelEvent]] = {}
    for event in told:
        if (place := _place(event)) is not None:
            by_place.setdefault(place, []).append(event)
    return [e for e in told if blame_of(e) in blames and not _follows(e, by_place.get(_place(e) or ("", -1), ()))]


def _cause_of(event: KernelEvent, told: Sequence[KernelEvent]) -> KernelEvent:
    """The Xid that this one names as its cause, where the log holds nothing else of it; else the event itself."""
    code = event.number("caused_by")
    if code is None or any(e.code == code and same_gpu(e, event) for e in told):
        return event
    data: dict[str, Value] = {"code": code, "named_by": event.code or 0}
    if xids.is_nvlink(code):
        data["fatal"] = 1  # what is not fatal removes no channel
    return replace(event, data=data)


def _is_second_hand(event: KernelEvent) -> bool:
    return event.number("named_by") is not None


def _of_another_job(case: Case, event: KernelEvent) -> bool:
    """A fault of a GPU on a host that this job uses without GPUs, or of a program while none of this job's failed.

    Pids alone don't tell: in a container the job knows its processes by other numbers than the kernel.
    """
    if case.hardware.rank_of(event.pid, event.host) is not None:
        return False
    if _without_gpus(case):
        return True
    return (
        blame_of(event) == "application"
        and case.hardware.stranger(event.pid, event.host)
        and (all(_was_ended(e) for e in case.events(*_PROGRAM_FAILED)) or _failed_otherwise(case))
    )


def _was_ended(event: Event) -> bool:
    """Whether this is the end of a process that somebody else ended."""
    return isinstance(event, ProcessExit | ElasticFailure) and deaths.signal_of(event) in _FROM_OUTSIDE


def _failed_otherwise(case: Case) -> bool:
    """Whether the job itself says what it failed of, and that is no fault of a program on a GPU."""
    if case.events(CudaError, NativeCrash):
        return False
    refused = any(event.error in _REFUSED for event in case.events(NcclError))
    return refused or any(map(_by_the_program, case.events(Traceback)))


def _by_the_program(event: Traceback) -> bool:
    """An exception of Python code; what CUDA reports is a RuntimeError too, and says so."""
    kind = event.type
    return bool(kind) and "." not in kind and (kind != "RuntimeError" or _GPU_WORDS.search(event.message) is None)


def knows_a_job(case: Case) -> bool:
    """Whether anything but kernel logs and machines is at hand."""
    return bool(case.people.by_rank or case.log_events) or case.lineup is not None


def _without_gpus(case: Case) -> bool:
    """Whether all that is known of the job says that it runs on CPUs: Gloo alone, and no process on any GPU."""
    calls = case.lineup.calls if case.lineup else []
    if not calls or any(call.backend != "gloo" for call in calls) or case.nccl or case.events(CudaError):
        return False
    on_gpu = any(p.gpu is not None or p.bus_id for p in case.people.by_rank.values())
    seen = {pid for state in case.hardware.gpus for pid in state.pids}
    return not on_gpu and not any(p.pid in seen for p in case.people.by_rank.values())


def _follows(event: KernelEvent, told: Iterable[KernelEvent]) -> bool:
    """Whether another of the faults of its GPU came just before: what comes after it is its doing."""
    for other in told:
        if other is event:
            continue
        blame = blame_of(other)
        if blame in ("nobody", "consequence") or (blame == "application" and event.code != 43):
            continue
        earlier = _before(other, event)
        if earlier and _rank_of_blame(blame) >= _rank_of_blame(blame_of(event)):
            return True
    return False


def _rank_of_blame(blame: xids.Blame) -> int:
    """Losing the bus explains all others; hardware explains a program's fault."""
    order: dict[xids.Blame, int] = {"bus": 3, "memory": 2, "nvlink": 2, "gpu": 2, "application": 1}
    return order.get(blame, 0)


def _place(event: KernelEvent) -> tuple[str, int] | None:
    """Host and slot of the GPU that an event names."""
    where = address(event.device)
    return None if where is None else (short_name(event.host or ""), where >> 4)


def _same_place(one: KernelEvent, other: KernelEvent) -> bool:
    return _place(one) is not None and _place(one) == _place(other)


def same_gpu(one: KernelEvent, other: KernelEvent) -> bool:
    """Whether two events name the same GPU, be it by an address that was made unreadable."""
    return _same_place(one, other) or (same_host(one.host, other.host) and one.device == other.device)


def _before(one: KernelEvent, other: KernelEvent) -> bool:
    """Whether one came shortly before the other; by the line where the clocks say nothing."""
    for first, second in ((one.time_ns, other.time_ns), (one.uptime_ns, other.uptime_ns)):
        if first is not None and second is not None:
            return (first, one.line) < (second, other.line) and second - first < _TOGETHER_NS
    return one.ref.source == other.ref.source and one.line < other.line


def first_events(events: Sequence[KernelEvent]) -> list[KernelEvent]:
    """Those of the first GPU in time; of other GPUs nothing: what they tell came later."""
    if not events:
        return []
    first = events[0]
    return [e for e in events if _same_place(e, first) or e is first]


def counting(case: Case, events: Sequence[KernelEvent]) -> tuple[list[KernelEvent], Weight]:
    """The events that weigh most, in order, with their weight: an old Xid does not hide a new one."""
    weighed = [(weigh(case, event), event) for event in events]
    best = min((_standing(case, *pair) for pair in weighed), default=None)
    chosen = [pair for pair in weighed if _standing(case, *pair) == best]
    return [event for _, event in chosen], chosen[0][0] if chosen else Weight("info", 2)


def _standing(case: Case, weight: Weight, event: KernelEvent) -> tuple[int, bool, bool]:
    return weight.less, weight.severity == "info", case.hardware.when(event) != "during"


def onset(events: Iterable[KernelEvent]) -> int | None:
    """The first wall-clock time of these."""
    return min((e.time_ns for e in events if e.time_ns is not None and e.time_ns > 0), default=None)
