"""Take the evidence of a live job into a bundle: bounded, and no failure of one step stops another."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whichrank.evidence.bundle import Bundle
from whichrank.evidence.collectors import environment, host_tables, processes
from whichrank.run.watch.capture.asking import ask, ask_quickly, await_all, await_torch, ring_torch
from whichrank.run.watch.capture.at_start import remember
from whichrank.run.watch.capture.dumps import dump_of, keep_groups, keep_variables
from whichrank.run.watch.capture.guards import keep_guards
from whichrank.run.watch.capture.host_state import (
    Questions,
    keep_gpus,
    keep_log,
    keep_ports,
    keep_ras,
    keep_tables,
)
from whichrank.run.watch.capture.last_words import keep_words, told
from whichrank.run.watch.capture.logs import keep_errors, keep_history, keep_output
from whichrank.run.watch.capture.network import keep_namespaces, keep_sockets
from whichrank.run.watch.capture.stacks import (
    begin_native,
    debugged_stacks,
    keep_native,
    keep_outline,
    spy_on_all,
    stacks_of,
)
from whichrank.run.watch.job_files import Torch
from whichrank.run.watch.job_processes import JobProcesses, Member
from whichrank.worker import network

__all__ = [
    "ANSWER_S", "NO_PLACES", "ask_quickly", "capture", "gather", "gather_end", "gather_machine", "keep_history",
    "only_stacks", "remember", "told",
]  # fmt: skip

ANSWER_S = 8.0
"""Stacks, entries and their frames take milliseconds; more on a host that is busy with many ranks."""
NO_PLACES = Torch()
BEFORE_S = 7200.0
"""How far back the log of a host without ranks is of interest."""


def capture(
    job_processes: JobProcesses, bundle: Bundle, token: str, *, patience_s: float = ANSWER_S, places: Torch = NO_PLACES,
    pauses: bool = False, gdb: bool = False,
) -> None:  # fmt: skip
    """Everything that can be had now, of every rank; what makes one stand still for a moment only if it may."""
    ranks = job_processes.ranks()
    living = [m for m in ranks if m.alive]
    asked = ask(job_processes, [m for m in living if not m.stopped and not m.blind], "full", token)
    asked_ns = time.time_ns() - 50_000_000  # times of files are coarser than the clock
    rung = ring_torch(places, living)
    # Whose interpreter is held does not answer: it is looked at from outside at once.
    spied = spy_on_all([m.words.pid for m in living if not asked or m.holds_gil])
    questions = Questions(ranks)
    native = begin_native(living, spied) if pauses else []
    for member in living:
        step(bundle, "process state", host_view, bundle, member, rank=member.rank)
    bundle.add("host/processes.txt", processes.table(m.words.pid for m in living).encode(), "processes")
    await_all(job_processes, asked, token, patience_s)
    for member in living:
        step(bundle, "stacks", stacks_of, job_processes, bundle, member, token, spied, rank=member.rank)
    for member, spy in native:
        step(bundle, "native stacks", keep_native, bundle, member, spy, rank=member.rank)
    if gdb:
        step(bundle, "gdb stacks", debugged_stacks, bundle, living)
    await_torch(places, rung, asked_ns)
    _gather(job_processes, bundle, token, places)
    step(bundle, "nccl ras", keep_ras, bundle, questions)
    _keep_machine(job_processes, bundle, questions)


def gather(job_processes: JobProcesses, bundle: Bundle, token: str, *, places: Torch = NO_PLACES) -> None:
    """Of a job that has ended: what it left, and what its host says."""
    questions = Questions(job_processes.ranks())
    _gather(job_processes, bundle, token, places)
    _keep_machine(job_processes, bundle, questions)


def gather_end(job_processes: JobProcesses, bundle: Bundle) -> None:
    """Of a job that was ended while all was well: who was there, and what was printed."""
    step(bundle, "output", keep_output, job_processes, bundle, job_processes.ranks())
    step(bundle, "last words", keep_words, job_processes, bundle)


def gather_machine(bundle: Bundle) -> None:
    """Of a host without a rank of the job: what it says of itself. Whoever was there may have been killed."""
    questions = Questions((), since_s=time.time() - BEFORE_S)
    step(bundle, "kernel log", keep_log, bundle, questions)
    step(bundle, "gpu state", keep_gpus, JobProcesses(Path("/nonexistent")), bundle, questions)
    bundle.add("host/state.txt", host_tables.tables(os.getpid()).encode(), "host state")
    bundle.add(f"host/net.{network.namespace()}.txt", network.own().encode(), "network")


def only_stacks(job_processes: JobProcesses, bundle: Bundle) -> None:
    """Where every rank is, and nothing else."""
    living = [m for m in job_processes.ranks() if m.alive]
    spied = spy_on_all([m.words.pid for m in living])
    for member in living:
        step(bundle, "process state", host_view, bundle, member, rank=member.rank)
        step(bundle, "stacks", stacks_of, job_processes, bundle, member, "", spied, rank=member.rank)


def _keep_machine(job_processes: JobProcesses, bundle: Bundle, questions: Questions) -> None:
    step(bundle, "kernel log", keep_log, bundle, questions)
    step(bundle, "host state", keep_tables, bundle, questions)
    step(bundle, "fabric counters", keep_ports, job_processes, bundle, questions)
    step(bundle, "gpu state", keep_gpus, job_processes, bundle, questions)


def _gather(job_processes: JobProcesses, bundle: Bundle, token: str, places: Torch) -> None:
    """What has been left in files so far: dumps, errors, connections, output, the last words of every process."""
    ranks = job_processes.ranks()
    for member in ranks:
        step(bundle, "flight recorder", dump_of, job_processes, bundle, member, token, places, rank=member.rank)
        step(bundle, "error", keep_errors, job_processes, bundle, member, rank=member.rank)
        step(bundle, "environment", keep_environment, bundle, member, rank=member.rank)
        step(bundle, "groups", keep_groups, job_processes, bundle, member, rank=member.rank)
        step(bundle, "variables", keep_variables, job_processes, bundle, member, token, rank=member.rank)
        step(bundle, "sockets", keep_sockets, job_processes, bundle, member, token, rank=member.rank)
    step(bundle, "outline", keep_outline, bundle, ranks)
    step(bundle, "network", keep_namespaces, job_processes, bundle, ranks, token)
    step(bundle, "output", keep_output, job_processes, bundle, ranks)
    step(bundle, "guard", keep_guards, job_processes, bundle)
    step(bundle, "last words", keep_words, job_processes, bundle)


def host_view(bundle: Bundle, member: Member) -> None:
    """What the kernel says of a rank."""
    pid, rank = member.words.pid, member.rank
    bundle.add(f"host/proc.{pid}.status.txt", processes.status(pid).encode(), "process status", rank=rank, pid=pid)
    kernel = processes.kernel_stacks(pid)
    if kernel:
        bundle.add(f"host/proc.{pid}.kernel.txt", kernel.encode(), "kernel stacks", rank=rank, pid=pid)
    bundle.add(f"host/proc.{pid}.limits.txt", processes.limits(pid).encode(), "process limits", rank=rank, pid=pid)


def keep_environment(bundle: Bundle, member: Member) -> None:
    """What a rank was started with, as far as it may be shown."""
    rank, pid = member.rank, member.words.pid
    variables = member.environ or processes.environ(pid)
    if variables:
        text = environment.as_text(variables).encode()
        bundle.add(f"environment/rank_{rank}.env", text, "environment", rank=rank, pid=pid)
    else:
        bundle.lacks("environment", "the process had gone, or belongs to somebody else", rank)


def step(bundle: Bundle, what: str, call: Callable[..., None], *arguments: Any, rank: int | None = None) -> None:
    """One step of a capture: where it fails, that is told and the next one follows."""
    try:
        call(*arguments)
    except Exception as error:  # noqa: BLE001 - evidence of others must not be lost with it
        bundle.lacks(what, f"{type(error).__name__}: {error}"[:300], rank)
