"""How processes ended, by what launchers and schedulers say; and who was ended by whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from whichrank.records.events.base import Event
from whichrank.records.events.communication import GlooTimeout, NcclError, PeerClosed
from whichrank.records.events.launchers import (
    ElasticFailure,
    ElasticRestart,
    ElasticSignal,
    JobEnded,
    ProcessExit,
    ProcessLeft,
)
from whichrank.records.events.startup import RendezvousError
from whichrank.records.events.watchdog import WatchdogStuck, WatchdogTerminated, WatchdogTimeout
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state import known_messages
from whichrank.timeline.job_state.statements import TIMED_OUT, Statement, rank_of, statement

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

KILL, TERMINATE, ABORT = 9, 15, 6
NATIVE = (11, 7, 4, 8)
SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    15: "SIGTERM",
}
_AGAIN = 3
_SLACK_NS = 2_000_000_000
"""The agent's table holds whole seconds."""
_APART_NS = 200_000_000
"""The watcher looks several times a second; what ended between two looks has nearly the same time."""


class Death(Struct, frozen=True):
    """The end of one process, as its launcher saw it."""

    sign: Statement
    code: int | None
    signal: int | None
    by_launcher: bool
    """The launcher itself ended it, or told it to end before."""


def deaths(case: Case) -> list[Death]:
    """One per process; a table's row and the line above it are the same."""
    ended = _ended_by_agent(case)
    found: dict[object, Death] = {}
    ends: list[ElasticFailure | ProcessExit] = [*case.events(ElasticFailure), *case.events(ProcessExit)]
    for event in ends:
        for rank in _ranks(case, event):
            who: object = rank if rank is not None else (event.host, event.pid, event.local_rank, event.line)
            death = _death(case, event, rank, ended)
            if death is not None:
                found.setdefault(who, death)
    return list(found.values())


def _death(case: Case, event: ElasticFailure | ProcessExit, rank: int | None, ended: set[int]) -> Death | None:
    code, number = event.exitcode, signal_of(event)
    if (code in (None, 0)) and number is None:
        return None
    heard = statement(case, event)
    if rank != heard.rank:
        heard = Statement(heard.text, heard.ref, rank, None, heard.time_ns, heard.about_ns, heard.host, None, event)
    return Death(heard, code, number, event.pid in ended)


def signal_of(event: ElasticFailure | ProcessExit) -> int | None:
    """The signal by which a process ended."""
    code = event.exitcode
    if event.signal is None and code is not None and 128 < code < 160:  # a shell's way to tell a signal
        return code - 128
    return event.signal


def _ended_by_agent(case: Case) -> set[int]:
    """Pids that the elastic agent (or DeepSpeed's launcher) told to end."""
    return {
        pid
        for event in case.events(ElasticSignal)
        if event.what in ("closing", "forced") and (pid := event.target_pid) is not None
    }


def _ranks(case: Case, event: ElasticFailure | ProcessExit) -> Iterable[int | None]:
    """The ranks that a line is about. Slurm's tasks are ranks only where no agent runs below them."""
    tasks = event.tasks if isinstance(event, ProcessExit) else ()
    if not tasks or "elastic" in {e.by for e in case.events(ProcessExit)}:
        return (rank_of(case, event),)
    plain = not case.events(ElasticFailure, ElasticSignal, ElasticRestart)
    if plain and case.world > max(tasks):
        return tasks
    return (None,)


def ended_from_outside(case: Case) -> list[Event]:
    """Words of a scheduler that ends the job, and of an agent that was told to end."""
    told = [e for e in case.events(ElasticSignal) if e.what == "death" or _passed_on(e)]
    return [*case.events(JobEnded), *told]


def _passed_on(event: ElasticSignal) -> bool:
    """Whether an agent ends its workers by a signal that it received itself: after a failure it sends SIGTERM."""
    return event.what == "closing" and event.signal in ("SIGHUP", "SIGINT", "SIGQUIT")


def dropped_again(case: Case) -> dict[str, list[RendezvousError]]:
    """Hosts whose agents the rendezvous took for dead several times, by what one other agent says: they came back each
    time, so they live."""
    told: dict[tuple[str, str], list[RendezvousError]] = defaultdict(list)
    for event in case.events(RendezvousError):
        for host in event.dropped:
            told[short_name(host), event.ref.source].append(event)
    return {host: events for (host, _), events in told.items() if len(events) >= _AGAIN}


def follows_the_end(case: Case, found: Statement) -> bool:
    """Whether the job was ended from outside, and this is not known to be earlier."""
    ends = ended_from_outside(case)
    if not ends:
        return False
    times = [e.time_ns for e in ends if e.time_ns is not None]
    return not times or found.time_ns is None or found.time_ns > min(times) - _SLACK_NS


def waited(case: Case, rank: int | None) -> bool:
    """Whether this rank (or, unnamed, any) tells that it waited, lost a peer, or was taken down by its watchdog."""
    kinds: tuple[type[Event], ...] = (
        WatchdogTimeout, WatchdogTerminated, WatchdogStuck, NcclError, PeerClosed, GlooTimeout,
    )  # fmt: skip
    return any(rank is None or event.rank in (None, rank) for event in case.events(*kinds))


def out_of_memory(case: Case) -> list[Death]:
    """Processes that Slurm says were ended for lack of memory."""
    return [
        d
        for d in deaths(case)
        if isinstance(d.sign.event, ProcessExit) and d.sign.event.reason.startswith("Out Of Memory")
    ]


def killed(case: Case) -> list[Statement]:
    """Processes that ended by SIGKILL, and not by their launcher's."""
    return [d.sign for d in deaths(case) if d.signal == KILL and not d.by_launcher]


def killed_when_memory_was_short(case: Case) -> tuple[list[Statement], list[Statement]]:
    """Those of them on hosts that had said that their memory was nearly used up, and where they said so."""
    full = [s.sign for s in known_messages.seen(case, "memory-nearly-full")]
    hosts = {s.host for s in full}
    return [s for s in killed(case) if full and (None in hosts or s.host is None or s.host in hosts)], full


def only_one_failed(case: Case) -> tuple[int, ...]:
    """The one rank that ended by itself while the launcher ended all others, if there is just one."""
    all_deaths = deaths(case)
    own = [d for d in all_deaths if not d.by_launcher and d.signal != TERMINATE and not _timed_out(case, d)]
    # mpirun tells of the first one only, and ends all others.
    others_ended = len(all_deaths) > 1 or bool(_ended_by_agent(case)) or any(_told_by_mpi(d) for d in own)
    if not others_ended or len(own) != 1 or own[0].sign.rank is None:
        return ()
    return (own[0].sign.rank,)


def _told_by_mpi(death: Death) -> bool:
    return isinstance(death.sign.event, ProcessExit) and death.sign.event.by == "mpi"


def _timed_out(case: Case, death: Death) -> bool:
    """Whether the rank was taken down by its own watchdog after it had waited for others."""
    waited = death.sign.rank is not None and any(e.rank == death.sign.rank for e in case.events(*TIMED_OUT))
    return waited or (death.signal == ABORT and after_a_timeout(case, death.sign))


def after_a_timeout(case: Case, sign: Statement) -> bool:
    """Whether watchdogs had given up by then: they abort every rank of the job."""
    gave_up = [e.time_ns for e in case.events(WatchdogTimeout) if e.time_ns is not None]
    return sign.time_ns is not None and bool(gave_up) and sign.time_ns >= min(gave_up)


def first_to_end(case: Case) -> Death | None:
    """The process that ended by itself, and not out of a wait, before all others did, as the watcher saw it."""
    ended = _ended_by_agent(case)
    watched = [e for e in case.events(ProcessExit) if e.by == "whichrank" and e.time_ns is not None]
    told = [(event, death) for event in watched if (death := _death(case, event, rank_of(case, event), ended))]
    if len(told) < 2 or len({death.sign.host for _, death in told}) > 1:
        return None
    (event, first), (following, _) = sorted(told, key=lambda row: row[0].time_ns or 0)[:2]
    at, then = event.time_ns or 0, following.time_ns or 0
    left_earlier = any((left.time_ns or at) <= at for left in case.events(ProcessLeft))
    by_itself = first.code is not None and 0 < first.code < 128 and not first.by_launcher
    return first if by_itself and not event.waiting and not left_earlier and then - at > _APART_NS else None


def left_to_crash(case: Case) -> tuple[int, ...]:
    """Ranks that ended well while every other rank crashed in native code: on NCCL an early leave does that."""
    left = {event.rank for event in case.events(ProcessLeft) if event.rank is not None}
    crashed = {d.sign.rank for d in deaths(case) if d.signal in (ABORT, *NATIVE)}
    others = set(range(case.world)) - left
    return tuple(sorted(left)) if left and len(others) > 1 and others <= crashed else ()
