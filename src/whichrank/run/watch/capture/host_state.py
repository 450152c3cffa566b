"""What the host says beside its processes: kernel log, RDMA ports, GPUs, and NCCL's own RAS."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from whichrank.evidence.bundle import Bundle
from whichrank.evidence.collectors import fabric, gpus, host_tables, kernel_log, processes, ras
from whichrank.evidence.collectors.tools import NO_ANSWER
from whichrank.run.watch.capture.aside import Aside
from whichrank.run.watch.capture.at_start import FABRIC, GPUS, started_s
from whichrank.run.watch.capture.files import read
from whichrank.run.watch.job_processes import JobProcesses, Member

ALL_S = 9.0
"""For all of it; each has a smaller limit of its own."""
TABLES_S = 2.0
_NOT_TWICE: set[str] = set()
"""What did not answer once is not asked again by this process: a driver that is wedged stays so."""


@dataclass(slots=True)
class Questions:
    """Asked all at once, beside what the ranks are asked."""

    members: Sequence[Member]
    since_s: float | None = None
    """From when on the kernel's log is of interest; by default the start of the job."""
    began: float = field(default_factory=time.monotonic)
    log: Aside[tuple[bytes, str]] = field(init=False)
    ports: Aside[str] = field(init=False)
    gpus: Aside[tuple[bytes, str]] = field(init=False)
    report: Aside[tuple[bytes, str]] = field(init=False)
    ras: Aside[tuple[ras.Answer, str]] = field(init=False)
    tables: Aside[dict[int, str]] = field(init=False)

    def __post_init__(self) -> None:
        since = self.since_s if self.since_s is not None else started_s(self.members)
        self.log = Aside(lambda: kernel_log.since(since))
        self.ports = Aside(fabric.ports)
        self.gpus = Aside(gpus.table if "gpus" not in _NOT_TWICE else _not_again)
        self.report = Aside(gpus.report if "gpus" not in _NOT_TWICE else _not_again)
        self.ras = Aside(lambda: _ask_ras(self.members))
        self.tables = Aside(lambda: _tables(self.members))

    @property
    def left_s(self) -> float:
        return max(0.2, ALL_S - (time.monotonic() - self.began))


def _not_again() -> tuple[bytes, str]:
    return b"", "it did not answer before"


def keep_log(bundle: Bundle, questions: Questions) -> None:
    """What the kernel said since the job started."""
    data, why = questions.log.result(questions.left_s)
    if data:
        bundle.add("host/kernel_log.txt", data, "kernel log")
    else:
        bundle.lacks("kernel log", why)


def keep_tables(bundle: Bundle, questions: Questions) -> None:
    """Memory and file systems as the ranks see them."""
    for number, text in questions.tables.result(min(TABLES_S, questions.left_s)).items():
        bundle.add(f"host/state.{number}.txt", text.encode(), "host state")


def keep_ports(job_processes: JobProcesses, bundle: Bundle, questions: Questions) -> None:
    """RDMA ports at the start and now."""
    now = questions.ports.result(questions.left_s).encode()
    if not now:
        bundle.lacks("fabric counters", fabric.NOTHING)
        return
    at_start = read(job_processes.folder / FABRIC)
    if at_start:
        bundle.add("host/fabric.before.txt", at_start, "fabric counters at the start")
    else:
        bundle.lacks("fabric counters at the start", "nobody was there to look")
    bundle.add("host/fabric.after.txt", now, "fabric counters")


def keep_gpus(job_processes: JobProcesses, bundle: Bundle, questions: Questions) -> None:
    """GPUs at the start and now, and all that nvidia-smi says."""
    now, why = questions.gpus.result(questions.left_s)
    report, _ = questions.report.result(questions.left_s)
    if NO_ANSWER in why:
        _NOT_TWICE.add("gpus")
    if report:
        bundle.add("host/nvidia-smi.txt", report, "gpu report")
    if not now:
        bundle.lacks("gpu state", why)
        return
    at_start = read(job_processes.folder / GPUS)
    if at_start:
        bundle.add("host/gpus.before.csv", at_start, "gpu state at the start")
    bundle.add("host/gpus.after.csv", now, "gpu state")


def keep_ras(bundle: Bundle, questions: Questions) -> None:
    """The report of NCCL's RAS, if it is of this job."""
    answer, address = questions.ras.result(questions.left_s)
    if not answer.data:
        bundle.lacks("nccl ras", answer.why)
        return
    ours, theirs = {m.words.pid for m in questions.members}, answer.pids()
    if theirs & ours or (not theirs and not ras.foreign(address, ours)):
        bundle.add(f"ras/status.{answer.form}", answer.data, "nccl ras")
    elif theirs:
        some = ", ".join(str(pid) for pid in sorted(theirs)[:8])
        bundle.lacks("nccl ras", f"at {address} another job answered (processes {some})")
    else:
        bundle.lacks("nccl ras", f"at {address} more than this job answers, and the report names no process")


def _tables(members: Sequence[Member]) -> dict[int, str]:
    """Mount namespace -> its tables, by one process each."""
    people = {host_tables.namespace(m.words.pid): m.words.pid for m in reversed(members) if m.alive}
    return {number: host_tables.tables(pid) for number, pid in people.items() if number}


def _ask_ras(members: Sequence[Member]) -> tuple[ras.Answer, str]:
    environ = next((found for m in members if m.alive and (found := processes.environ(m.words.pid))), {})
    address = environ.get(ras.VARIABLE, ras.DEFAULT)
    if environ.get(ras.SWITCH) == "0":
        return ras.Answer(why=f"{ras.SWITCH} is 0"), address
    if not any(m.alive for m in members):
        return ras.Answer(why="no rank is left"), address
    return ras.ask(address), address
