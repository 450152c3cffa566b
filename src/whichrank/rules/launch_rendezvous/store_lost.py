"""The store went away first; the ranks only lost their store.

## What it finds
Ranks that ended because the key-value store (on rank 0's host, or in the elastic agent there) closed its
connections, while nothing tells of a failure of their own.

## Why it happens
The process that hosts the store ended before the others: rank 0 left early, the agent of the first node was ended,
its host was lost.

## How it decides
Store errors that ended a rank, and no other rank's own failure, no signal from outside and no lost peer that would
explain them (what failed only after the store was lost does not); or an elastic agent that lost its connection to the
rendezvous while its workers ran. Warnings of the store alone prove nothing: every orderly end that is not simultaneous
prints them. The host of the store is named where the launch says where the ranks meet, and others lost it.

## Example
Ranks 1-7 end with `DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.`

## Limits
The log of the store's host is what settles it.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.events.base import Event
from whichrank.records.events.collectives import FingerprintMismatch, MonitoredBarrierFailed
from whichrank.records.events.communication import GlooMismatch, PeerClosed
from whichrank.records.events.launchers import HostOutOfMemory
from whichrank.records.events.processes import CudaError, DataloaderWorkerDied, DdpError, NativeCrash, Traceback
from whichrank.records.events.run_state import LossNonfinite
from whichrank.records.events.startup import RendezvousError, StoreError
from whichrank.records.events.watchdog import WatchdogTimeout
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state import deaths, exceptions, statements
from whichrank.timeline.job_state.outcome import at_work, losses_of_all
from whichrank.timeline.job_state.statements import Statement

CODE = "LNCH102"
CAUSE = "store-lost"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
    alternatives=(
        ("rank-exception", "rank 0 may have ended by an exception that is not at hand"),
        ("host-lost", "the host of the store may be gone"),
    ),
    next=(
        NextStep(
            "whichrank diagnose FOLDER-WITH-RANK-0-LOG",
            "the log of the store's host tells what ended it",
            ("rank-exception", "rank-killed", "host-lost"),
            "none",
        ),
    ),
)
_OTHERS: tuple[type[Event], ...] = (
    WatchdogTimeout, PeerClosed, CudaError, NativeCrash, DataloaderWorkerDied, DdpError,
    FingerprintMismatch, MonitoredBarrierFailed, HostOutOfMemory, GlooMismatch, LossNonfinite,
)  # fmt: skip
_REMOTE = re.compile(r"\bremote=\[(?=[\w.-]*[A-Za-z])([A-Za-z][\w.-]{1,253})\]:\d")
"""Where torch knows the name of the peer; else it may print garbage."""
_UNIQUE_ID = "retrieving ncclUniqueId from [0]"
"""The first collective of a group asks the store for NCCL's id."""
_WORDS = (
    "Failed to recv",
    "Connection was likely closed",
    "sendBytes failed",
    "Broken pipe",
    "Connection reset by peer",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    lost = statements.of_kind(case, StoreError, where=lambda e: e.what == "closed")
    ended = [s for s in statements.of_kind(case, Traceback, where=_at_the_store) if _closed(s.text)]
    ended += _agents(case)
    gone = ended or deaths.deaths(case) or _lost_by_many(case, lost)
    if not (lost or ended) or not gone or _explained(case, lost):
        return []
    signs = statements.first_to_fail([*ended, *lost])
    who = building.who(case, statements.ranks_of(signs), signs)
    message = f"{who} lost the store; no earlier failure is recorded."
    grade = Grade.SUPPORTS if {s.rank for s in ended} >= set(range(max(case.world, 2))) else Grade.HINTS
    finding = building.found(case, _CLAIM, signs, message, grade)
    host = _host_of_store(case, signs)
    return [building.about(finding, replace(finding.subject, hosts=(host,))) if host else finding]


def _host_of_store(case: Case, lost: list[Statement]) -> str:
    """The host at which the ranks met, where those who lost it are on others."""
    named = {match[1] for sign in lost if (match := _REMOTE.search(sign.ref.quote or ""))}
    at = case.store or (named.pop() if len(named) == 1 else "")
    store = case.host_names.get(at, at)
    hosts = {short_name(sign.host) for sign in lost if sign.host and sign.host != "localhost"}
    known = hosts or {short_name(host) for host in case.people.hosts()}
    return store if store and known and short_name(store) not in known else ""


def _lost_by_many(case: Case, lost: list[Statement]) -> bool:
    """Whether several ranks lost it, and their output does not go on: at its end a run closes the store too."""
    return len(statements.ranks_of(lost)) > 1 and case.finish is None and at_work(case) is None


def _agents(case: Case) -> list[Statement]:
    """Agents that had been connected to the rendezvous, and are not any more."""
    if not exceptions.agent_had_workers(case):
        return []
    return statements.of_kind(case, RendezvousError, where=lambda e: e.error == "RendezvousConnectionError")


def _at_the_store(event: Traceback) -> bool:
    return exceptions.short_type(event) in ("DistNetworkError", "DistStoreError") or _UNIQUE_ID in event.message


def _closed(text: str) -> bool:
    return any(words in text for words in _WORDS)


def _explained(case: Case, lost: list[Statement]) -> bool:
    store = {(e.ref.source, e.line) for e in case.events(StoreError)}
    others = [e for e in case.events(*_OTHERS) if (e.ref.source, e.line) not in store and not _follows(e, lost)]
    if losses_of_all(case):  # what another process than a rank died of is what the store was lost by
        others = [e for e in others if e.rank is not None or not isinstance(e, NativeCrash)]
    if others or deaths.ended_from_outside(case) or exceptions.own_exceptions(case):
        return True
    own = (deaths.KILL, deaths.ABORT, *deaths.NATIVE)
    return any(d.signal in own and not d.by_launcher for d in deaths.deaths(case))


def _follows(event: Event, lost: list[Statement]) -> bool:
    """Whether something failed only after the store was lost: by the clock, else by the lines of one output."""
    times = [s.time_ns for s in lost if s.time_ns is not None]
    if event.time_ns is not None and times:
        return event.time_ns > min(times)
    lines = [s.event.line for s in lost if s.event is not None and s.ref.source == event.ref.source]
    return bool(lines) and event.line > min(lines)
