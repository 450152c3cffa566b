"""A rank never reached process-group creation, and the others wait for it.

## What it finds
Ranks that began to make the first communicator (or wait in the store) while one or more never came that far.

## Why it happens
A host that is slow to start or did not start, an import or download that blocks on one rank, a crash before the
process group is made, a launcher that started fewer processes than it announced.

## How it decides
NCCL prints "Init START" on the ranks that came and no "Init COMPLETE" on any: the absent ones are the world without
them. NCCL before 2.23 prints "Init START" only behind the bootstrap, where all ranks have met: there, and wherever
lines about nodes, trees, rings or channels follow, nobody is absent. Without NCCL's log: stacks of ranks that are
making the group beside ranks that are elsewhere, or the store's own count of clients.

## Example
Ranks 0-2 printed `Init START … nranks 4`, none `Init COMPLETE`; rank 3 is at `train.py:39`.

## Fix
Look at the absent rank: did its process start, what is it doing, does its host answer?

## Limits
A rank whose log was not collected looks the same as one that never came; its stack or its process tells. The log of
one rank alone accuses nobody unless something says that the job hangs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, CodePlace, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.model.late_pattern import late
from whichrank.records.events.communication import NcclError, PeerClosed
from whichrank.records.events.startup import CommInit, GroupInit, NotJoined, StoreError
from whichrank.records.events.watchdog import DumpSignal, WatchdogProgress, WatchdogTimeout
from whichrank.records.stack import ProcessStack
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.stuck import stack_ref
from whichrank.timeline.collectives.unrecorded import in_new_group

if TYPE_CHECKING:
    from whichrank.records import nccl

CODE = "LNCH101"
CAUSE = "missing-rank-at-init"

_VERSION = late(r"(\d{1,3})\.(\d{1,3})")
_START_BEFORE_BOOTSTRAP = (2, 23)
"""The first version that prints `Init START` before the ranks meet; until then it is printed behind."""
_TOPOLOGY = late(
    r"\bTrees? ?\[|\bRing \d|\bChannel \d|Setting affinity|Affinity for GPU|GPU Direct RDMA (?:Dis|En)abled"
    r"|\bConnected all |\bcoll channels|\bPattern \d|=== System"
)
"""What a rank prints between the bootstrap and the end of the making."""
_WRAPPED = late(r"torch/nn/parallel/distributed\.py$|distributed/(?:_composable/)?fsdp/")
_GAVE_UP_WAITING = ("clients_missing", "key_timeout", "barrier_timeout", "socket_timeout", "unique_id")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    never = {e.rank: e.ref for e in case.events(NotJoined) if e.rank is not None}
    joined = {e.rank for e in case.events(CommInit, GroupInit) if e.rank is not None}
    if never and joined and not case.goes_on:
        # A watcher saw it: with NCCL the others meet, and record, only behind the making of the group.
        return [_finding(case, tuple(sorted(never)), tuple(sorted(joined - set(never))), list(never.values()))]
    if case.lineup is not None or in_new_group(case):
        return []
    started, refs = _started(case)
    starting = {rank for rank, activity in case.activities.items() if activity.doing == "starting"}
    here = started | starting | {e.rank for e in case.events(CommInit, GroupInit) if e.rank is not None}
    elsewhere = {
        rank
        for rank, activity in case.activities.items()
        if rank not in here and activity.doing not in ("starting", "unknown")
    }
    if not here or not (case.world or _few_do_something_else(case, elsewhere)):
        return NotEvaluated("NCCL's log, torch's log or stacks of ranks that are starting")
    absent = tuple(sorted(elsewhere or set(range(case.world)) - here))
    if any(_is_wrapped(case.stacks[rank]) for rank in elsewhere if rank in case.stacks):
        return []  # it has a group: they are at different places behind its creation
    if not absent or _came_up(case) or not (started or starting or _stayed_at_init(case)):
        return []
    alone = len(here) == 1 and not starting and not elsewhere
    if (alone or _on_their_way(case)) and not _hangs(case):
        return []
    return [_finding(case, absent, tuple(sorted(here)), refs)]


def _is_wrapped(stack: ProcessStack) -> bool:
    """Whether a thread runs a model that DDP or FSDP has wrapped, which takes a group."""
    frames = (frame for thread in stack.threads for frame in thread.frames)
    return any(_WRAPPED.search(frame.file) and frame.function.endswith("forward") for frame in frames)


def _few_do_something_else(case: Case, elsewhere: set[int]) -> bool:
    """Whether stacks alone tell who is missing: most ranks make the group, and the others do not wait for anybody."""
    busy = all(case.activities[rank].doing not in ("waiting", "leaving") for rank in elsewhere)
    return busy and 0 < 2 * len(elsewhere) < len(case.activities)


def _started(case: Case) -> tuple[set[int], list[Ref]]:
    """Ranks that printed the beginning of the first communicator, with the lines that show it."""
    found: set[int] = set()
    refs: list[Ref] = []
    for process in case.nccl:
        for init in process.inits:
            if init.phase == "start" and init.nranks == case.world:
                found.add(init.rank)
                quote = f"{init.api or 'comm'} rank {init.rank} nranks {init.nranks} - Init START"
                refs.append(Ref(process.source, f"line {init.line}", quote, init.rank, process.host))
    return found, refs


def _came_up(case: Case) -> bool:
    """Whether the first communicator was completed anywhere, or all of its ranks had met."""
    return any(
        init.nranks == case.world and (init.phase == "complete" or _had_met(case, process, init))
        for process in case.nccl
        for init in process.inits
    )


def _had_met(case: Case, process: nccl.NcclProcess, init: nccl.CommInit) -> bool:
    """Whether a rank that began is known to be past the bootstrap, which ends when all ranks came."""
    if any(node.nranks == init.nranks for node in process.nodes):
        return True
    if any(way.line > init.line for way in process.transports):
        return True
    if process.last_line > init.line and _TOPOLOGY.search(process.last_text):
        return True
    # 2.19 to 2.21 do not name the function; 2.22 does, as all later ones.
    told = {process.version} if process.version else set(case.nccl_versions)
    numbers = [(int(m[1]), int(m[2])) for version in told if (m := _VERSION.match(version))]
    return all(number < _START_BEFORE_BOOTSTRAP for number in numbers) if numbers else not init.api


def _on_their_way(case: Case) -> bool:
    """Whether a log ends with lines of processes that were about to begin: it was cut, or taken too early."""
    begun: dict[str, int] = {}
    for process in case.nccl:
        for init in process.inits:
            begun[process.source] = max(init.line, begun.get(process.source, 0))
    return any(not p.inits and p.last_line > begun[p.source] for p in case.nccl if p.source in begun)


def _hangs(case: Case) -> bool:
    """Whether anything says that the ranks wait without an end."""
    from whichrank.timeline.job_state.known_messages import stands_still

    return bool(stands_still(case)) or any(event.what in _GAVE_UP_WAITING for event in case.events(StoreError))


def _stayed_at_init(case: Case) -> bool:
    """Communicators were begun and nothing of the training itself was ever printed."""
    later = case.events(WatchdogTimeout, WatchdogProgress, DumpSignal, NcclError, PeerClosed)
    return bool(case.events(CommInit)) and not later and not any(len(progress) for progress in case.progress)


def _finding(case: Case, absent: tuple[int, ...], here: tuple[int, ...], refs: list[Ref]) -> Finding:
    stacks = [stack_ref(case, rank) for rank in absent if rank in case.stacks]
    waiting = [stack_ref(case, rank) for rank in here if rank in case.stacks][:1]
    place = next((case.activities[r].place for r in absent if r in case.activities and case.activities[r].place), None)
    at = f": it is at {place}" if place is not None and len(absent) == 1 else ""
    verb = "has" if len(absent) == 1 else "have"
    # Of most ranks no line at all: rather their logs are missing than they themselves.
    unheard = not stacks and len(absent) > len(here)
    evidence = (*stacks[:3], *refs[:3], *waiting) or tuple(e.ref for e in case.events(CommInit, GroupInit)[:3])
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=Grade.PROVES if stacks and case.world else Grade.HINTS if unheard else Grade.SUPPORTS,
        kind="stacks" if stacks else "messages",
        subject=Subject(
            ranks=() if unheard else absent,
            candidates=absent if unheard else (),
            code=(CodePlace(place.file, place.line, place.function, absent[0]),) if place else (),
        ),
        message=(
            f"{wording.ranks_text(absent).capitalize()} {verb} not reached the creation of the process "
            f"group, where {wording.ranks_text(here)} wait{'s' if len(here) == 1 else ''}{at}."
        ),
        evidence=evidence,
        victims=here,
        alternatives=(Alternative("host-lost", "its host may be down"),)
        if stacks
        else (Alternative("wrong-interface", "it may have started but not reach the others"),),
        next=()
        if stacks
        else (
            NextStep(
                "ps aux | grep python; py-spy dump --nonblocking --pid PID",
                "on the host of the absent rank",
                (),
                "none",
            ),
        ),
        fix=(
            (
                f"Look at {wording.ranks_text(absent)}: what {'it does' if len(absent) == 1 else 'they do'} before "
                f"init_process_group, and whether {'its process runs' if len(absent) == 1 else 'their processes run'} "
                "at all."
            ),
            "Make the group first, and do slow preparations after it (or raise the timeout of init_process_group).",
        ),
    )
