"""A rank's process is alive and none of its threads answers: its watchdog is silent while all others speak.

## What it finds
A rank that did not answer the signal to write a dump, while the ranks that timed out and all others did, and that the
launcher still had to end afterwards.

## Why it happens
torch's watchdog and its monitor are threads of their own in C++: Python code, a lock, a data loader or a stuck kernel
does not silence them. SIGSTOP, a frozen cgroup or a paused container does.

## How it decides
By torch's own lines: each rank but this one says that it timed out, or that it received the signal; this one says
nothing and left no dump. torchrun tells only living processes to end, and it told this one.

## Example
Ranks 1-2 "Received a dump signal due to a collective timeout", rank 0 nothing; later "Sending process 1189 closing
signal SIGTERM".

## Fix
`kill -CONT PID`, thaw the cgroup, and find who stopped it.

## Limits
Needs the output of all ranks of that launcher in one log, or a log of the silent rank.
"""

from __future__ import annotations

from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.events.base import Event
from whichrank.records.events.communication import NcclError
from whichrank.records.events.launchers import ElasticSignal
from whichrank.records.events.processes import CudaError, Traceback
from whichrank.records.events.watchdog import (
    DumpSignal,
    DumpStarted,
    DumpWritten,
    WatchdogProgress,
    WatchdogStuck,
    WatchdogTerminated,
    WatchdogTimeout,
)
from whichrank.rules import wording
from whichrank.timeline.case import Case

CODE = "HOST110"
CAUSE = "rank-frozen"

_SPEAKS = (
    *(WatchdogTimeout, WatchdogProgress, WatchdogTerminated, WatchdogStuck, DumpSignal, DumpStarted, DumpWritten),
    *(CudaError, NcclError, Traceback),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    signals = [event for event in case.events(DumpSignal) if event.rank is not None]
    if not signals:
        return NotEvaluated("torch's lines on the signal to write dumps")
    spoke = {event.rank for event in case.events(*_SPEAKS)}
    silent = [rank for rank in range(case.world) if rank not in spoke]
    if not silent or len(silent) >= case.world - len(silent):
        return []
    dumped = set(case.lineup.dumped) if case.lineup is not None and case.has_dumps else set()
    ended = {rank: event for event in case.events(ElasticSignal) if (rank := _told_to_end(case, event)) is not None}
    if not dumped.isdisjoint(silent) or not ended.keys() >= set(silent):
        return []
    if not all(_is_heard(case, rank, signals, ended[rank]) for rank in silent):
        return []
    return [_finding(case, tuple(silent), [*signals[:2], *(ended[rank] for rank in silent)])]


def _told_to_end(case: Case, event: ElasticSignal) -> int | None:
    """The rank that the launcher ends there."""
    return case.people.rank_of(event.target_pid) if event.what in ("closing", "forced") else None


def _is_heard(case: Case, rank: int, signals: list[DumpSignal], ended: Event) -> bool:
    """Whether what this rank says would be at hand: all ranks write into the launcher's log, or it has a log."""
    together = {event.rank for event in signals if event.ref.source == ended.ref.source}
    return len(together) > 1 or any(event.rank == rank for event in case.log_events)


def _finding(case: Case, ranks: tuple[int, ...], shown: list[Event]) -> Finding:
    others = tuple(rank for rank in range(case.world) if rank not in ranks)
    one = len(ranks) == 1
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=Grade.SUPPORTS,
        subject=Subject(ranks=ranks),
        message=(
            f"{wording.culprits_text(case, ranks).capitalize()} {'does' if one else 'do'} not run: "
            f"{wording.ranks_text(others)} answer the signal to write a dump, and of "
            f"{'this one' if one else 'these'} not even the watchdog's thread does, though the process"
            f"{' is' if one else 'es are'} still there."
        ),
        evidence=tuple(event.ref for event in shown[:5]),
        victims=others,
        onset_ns=shown[0].time_ns,
        alternatives=(Alternative("host-lost", "its host may not answer"),) if not case.on_one_node else (),
        next=(NextStep("grep State /proc/PID/status", "T: it is stopped", (CAUSE,), "none"),),
        fix=("Let it go on: kill -CONT PID, or thaw its cgroup; then find who stopped it.",),
    )
