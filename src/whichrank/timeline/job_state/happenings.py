"""What happened when and on which host: events of kernels and of the job on one clock, for reports that draw them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from whichrank.model.evidence import Ref
from whichrank.model.views import Moment
from whichrank.records.events.base import Event
from whichrank.records.events.collectives import MonitoredBarrierFailed, StallReport
from whichrank.records.events.communication import GlooTimeout, NcclError, PeerClosed
from whichrank.records.events.launchers import (
    ElasticFailure,
    ElasticRestart,
    HostOutOfMemory,
    JobEnded,
    LauncherEnded,
    NodeSilent,
    ProcessExit,
)
from whichrank.records.events.processes import CudaError, DataloaderWorkerDied, NativeCrash, Traceback
from whichrank.records.events.run_state import LossNonfinite, RunFinished
from whichrank.records.events.startup import InitError, RendezvousError, StoreError
from whichrank.records.events.watchdog import WatchdogStuck, WatchdogTimeout
from whichrank.records.hardware import KernelEvent, KernelKind
from whichrank.timeline.case import Case
from whichrank.timeline.clocks.log_times import moved_to_year

MOST = 200
_NEAR_NS = 6 * 3600 * 10**9
"""What happened earlier than this before the job's first failure has no place beside it."""
_HOST: dict[KernelKind, str] = {
    "xid": "Xid", "sxid": "NVSwitch error", "gpu_lost": "GPU lost", "gpu_page_fault": "GPU page fault",
    "gpu_init_failed": "GPU did not start", "pcie_error": "PCIe error", "oom_kill": "out of memory: process killed",
    "segfault": "segmentation fault", "link_down": "link down", "link_up": "link up",
    "nic_fault": "network adapter fault",
    "server_silent": "file server silent", "server_back": "file server back", "hung_task": "hung task",
    "soft_lockup": "CPU lockup", "io_error": "I/O error", "cpu_throttled": "CPU throttled",
    "machine_check": "machine check", "boot": "boot",
}  # fmt: skip
_JOB: dict[type[Event], str] = {
    WatchdogTimeout: "collective timed out", GlooTimeout: "collective timed out",
    StallReport: "stall reported",
    MonitoredBarrierFailed: "barrier timed out", WatchdogStuck: "watchdog stuck", CudaError: "CUDA error",
    NcclError: "NCCL error", Traceback: "exception", NativeCrash: "crash", PeerClosed: "lost a peer",
    DataloaderWorkerDied: "data loader worker died", ProcessExit: "process ended", StoreError: "store error",
    RendezvousError: "rendezvous error", InitError: "could not start", ElasticFailure: "rank failed",
    ElasticRestart: "restarted", LauncherEnded: "launcher ended", JobEnded: "job ended by the scheduler",
    NodeSilent: "node silent", HostOutOfMemory: "out of memory", LossNonfinite: "loss not finite",
    RunFinished: "run finished",
}  # fmt: skip


class _Seen(NamedTuple):
    time_ns: int
    host: str
    rank: int | None
    what: str
    ref: Ref
    of_host: bool


def happenings(case: Case) -> tuple[Moment, ...]:
    """In order of time; what several ranks of a host say alike is one moment, the first."""
    seen = sorted([*_of_hosts(case), *_of_the_job(case)], key=lambda one: (one.time_ns, one.host, one.what))
    anchor = next((one.time_ns for one in seen if not one.of_host), seen[-1].time_ns if seen else 0)
    together: dict[tuple[str, str, bool, str], list[_Seen]] = {}
    for one in seen:
        if one.time_ns >= anchor - _NEAR_NS:
            # Each statement of a kernel counts; of the job's ranks it is the first that matters.
            alone = f"{one.ref.source} {one.ref.locator}" if one.of_host else ""
            together.setdefault((one.host, one.what, one.of_host, alone), []).append(one)
    return tuple(_moment(all_) for all_ in list(together.values())[:MOST])


def _moment(alike: list[_Seen]) -> Moment:
    first = alike[0]
    ranks = sorted({one.rank for one in alike if one.rank is not None})
    return Moment(
        first.time_ns, first.host, tuple(ranks), first.what, first.ref.source, first.ref.locator, first.ref.quote,
        first.of_host,
    )  # fmt: skip


def _of_hosts(case: Case) -> Iterator[_Seen]:
    for event in case.hardware.kernel:
        what = _HOST.get(event.kind)
        if what and event.time_ns is not None and event.time_ns > 0 and not _harmless(event):
            number = f" {event.code}" if event.kind in ("xid", "sxid") and event.code is not None else ""
            yield _Seen(event.time_ns, event.host or event.ref.host or "", None, what + number, event.ref, True)


def _harmless(event: KernelEvent) -> bool:
    return event.text("severity") == "corrected" or event.number("corrected") == 1


def _of_the_job(case: Case) -> Iterator[_Seen]:
    told: set[tuple[str, str]] = set()
    newest = max((event.time_ns or 0 for event in case.hardware.kernel), default=0)
    for event in case.log_events:
        what, place, time_ns = _JOB.get(type(event)), (event.ref.source, event.ref.locator), event.time_ns or 0
        if time_ns < 0 and newest:  # torch writes no year; the kernel's log has one
            time_ns = moved_to_year(time_ns, newest)
        if what and time_ns > 0 and place not in told and not (isinstance(event, Traceback) and event.ignored):
            told.add(place)  # one line may say several things
            yield _Seen(time_ns, _host(case, event), event.rank, what, event.ref, False)


def _host(case: Case, event: Event) -> str:
    known = case.people.host_of(event.rank) if event.rank is not None else None
    return known or event.host or event.ref.host or ""
