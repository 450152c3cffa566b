"""What the output says a rank was doing when the others had timed out in a collective, or at the start."""

from __future__ import annotations

import re

import numpy as np

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.records.events.communication import GlooTimeout, NcclError, PeerClosed
from whichrank.records.events.processes import CudaError
from whichrank.records.events.startup import StoreError
from whichrank.records.events.watchdog import WatchdogTimeout
from whichrank.records.trial import Complaint
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.known_messages import Seen
from whichrank.timeline.job_state.statements import Statement

_TROUBLE = re.compile(
    r"(?i:time-?d? ?-?out|\bhang|\bhung|stuck|freez|stall|expire|exception|error|fail|crash|killed|abort)"
    r"|超时|报错|卡住|卡死|卡在|挂起|崩溃|タイムアウト|ハング|エラー"
)
"""A slow save or evaluation is told of good runs too."""
_RAISED = ("frame-main-process-first", "bar-to-the-limit")
"""Hints that stand in a traceback: somebody has timed out there."""
_CUT_OFF = re.compile(r"Connection (?:reset|closed|refused|was likely closed)|Broken pipe")
_STORE = ("unique_id", "barrier_timeout", "wait_timeout", "socket_timeout")
_SMALL = 1
"""A barrier is an all-reduce of one element."""
_EARLY = 10
"""A sequence number below this belongs to the start of a job."""
_MAIN = re.compile(r"(?<!local_)main_process_first|is_world_process_zero|\brank ?== ?0\b|ncclUniqueId from \[0\]")


def judge(case: Case, claim: Claim, tell: str) -> list[Finding] | NotEvaluated:
    """The finding that the last activity before a timeout makes, where nothing surer is at hand."""
    if not statements.heard(case):
        return building.SILENT
    waiting = [*known_messages.timed_out(case), *_waited_elsewhere(case)]
    hints = known_messages.of_cause(case, claim.cause, ("hint",))
    raised = () if _cut_off(case) else _RAISED
    stacks = {case.stacks[rank].source for rank, a in case.activities.items() if a.doing == "waiting"}
    hints = [s for s in hints if s.sign.ref.source not in stacks]  # what it waits in is told by its innermost frame
    told = [s.sign for s in hints if waiting or s.id in raised or _TROUBLE.search(s.sign.text)]
    if not told:
        told += [Statement(c.ref.quote, c.ref, kind="reports") for c in _of_one_phase(case) if c.phase == claim.cause]
    if claim.cause == "rank-stuck-in-preprocessing" and (waiting or told):
        told += [Statement(clue.ref.quote, clue.ref) for clue in case.clues if clue.kind == "between_barriers"]
    last = _last(case, waiting)
    mine = [s for s in last if s.signature.cause == claim.cause and s.sign.ref.source not in stacks]
    if case.has_dumps or not (waiting or told) or not (mine or told):
        return []
    signs = [*(s.sign for s in mine[-2:]), *told, *waiting]
    what = building.short(mine[-1].sign.text if mine else told[0].text, 100)
    ranks = _who(case, mine) or _main_process(case, [*(s.sign for s in mine), *told, *waiting])
    who = building.who(case, ranks, []) if ranks else "A rank"
    return [building.found(case, claim, signs, tell.format(who=who, what=what), _grade(case, claim, mine, told), ranks)]


def _of_one_phase(case: Case) -> list[Complaint]:
    """What people say of where it stands still or takes long, where all of that is about one part of the job, and NCCL
    does not count which ranks are behind."""
    if any(report.mismatches for report in case.ras):
        return []
    told = [c for c in case.complaints if c.phase is not None and c.category in ("hang", "slow")]
    return told if len({complaint.phase for complaint in told}) == 1 else []


def _who(case: Case, mine: list[Seen]) -> tuple[int, ...]:
    """The one rank that said what it does; who timed out only waits, and then it is who did not come."""
    waited = _waited(case)
    spoke = [rank for rank in statements.ranks_of([s.sign for s in mine]) if rank not in waited]
    ranks = statements.unless_all(case, tuple(spoke))
    if not ranks and len(case.first_to_fail) == 1 and not case.first_to_fail & waited:
        return tuple(case.first_to_fail)
    return ranks if len(ranks) == 1 else ()


def _waited(case: Case) -> set[int | None]:
    at_store = {event.rank for event in case.events(StoreError) if event.what in _STORE}
    return at_store | {event.rank for event in case.events(WatchdogTimeout, GlooTimeout)}


def _main_process(case: Case, signs: list[Statement]) -> tuple[int, ...]:
    """Rank 0, where the code lets the main process go first or others wait for its id, and it is not among those."""
    waited = _waited(case)
    return (0,) if waited and 0 not in waited and any(_MAIN.search(sign.text) for sign in signs) else ()


def _waited_elsewhere(case: Case) -> list[Statement]:
    """What else says that ranks timed out: in the store, for NCCL's id, in the start barrier, in a few words."""
    told = statements.of_kind(case, StoreError, where=lambda e: e.what in _STORE)
    gave_up = [s for s in told if not _CUT_OFF.search(s.text)]
    named = ["torch-unique-id"]
    if not case.events(NcclError, CudaError, PeerClosed):
        named.append("torch-failed-or-timed-out")  # then it was a timeout, of which the first line is not at hand
    return gave_up + [s.sign for s in known_messages.seen(case, *named) if not _CUT_OFF.search(s.sign.text)]


def _cut_off(case: Case) -> bool:
    """Whether ranks lost their store instead of timing out."""
    told = statements.of_kind(case, StoreError, where=lambda e: e.what in (*_STORE, "closed"))
    return any(_CUT_OFF.search(s.text) for s in told)


def _grade(case: Case, claim: Claim, mine: list[Seen], told: list[Statement]) -> Grade:
    """One of these hints, two of them support."""
    start = claim.cause == "rank-stuck-in-preprocessing" and at_a_barrier_of_the_start(case)
    written = {complaint.ref.source for complaint in case.complaints}
    printed = any(seen.sign.ref.source not in written for seen in mine)  # a report names functions, too
    return Grade.SUPPORTS if printed + bool(told) + start > 1 else Grade.HINTS


def _last(case: Case, waiting: list[Statement]) -> list[Seen]:
    """Of each file, the activity that was told last before its first timeout."""
    stops: dict[str, int] = {}
    # A title may repeat the message above the log; the log says which rank it was.
    with_rank = {sign.ref.source for sign in waiting if sign.rank is not None}
    for sign in waiting:
        if sign.rank is None and sign.ref.source in with_rank:
            continue
        line = int(sign.ref.locator.removeprefix("line ")) if sign.ref.locator.startswith("line ") else 0
        stops[sign.ref.source] = min(line, stops.get(sign.ref.source, line))
    last: dict[str, Seen] = {}
    for s in known_messages.seen(case, *known_messages.activities()):
        named = s.id != "doing-first-item" or s.sign.ref.source not in last  # a bar at nothing does not say of what
        if named and s.event.line <= stops.get(s.sign.ref.source, s.event.line):
            last[s.sign.ref.source] = s
    return [s for s in last.values() if not _went_on(case, s)]


def _went_on(case: Case, seen: Seen) -> bool:
    """Whether steps beyond the one before it were made after that: then it was over."""
    for progress in case.progress:
        if progress.source == seen.sign.ref.source:
            before = np.flatnonzero(progress.line < seen.event.line)
            if not len(before):
                continue
            alike = (progress.line > seen.event.line) & (progress.total == progress.total[before[-1]])
            after = progress.step[alike & (progress.loss_state == progress.loss_state[before[-1]])]
            if len(np.unique(after[after > progress.step[before].max()])) > 1:
                return True
    return False


def at_a_barrier_of_the_start(case: Case) -> bool:
    """One extra clue decides: a reduction of barrier size with a low sequence number."""
    return any(
        (event.numel_in or 0) <= _SMALL and (event.seq or _EARLY) < _EARLY for event in case.events(WatchdogTimeout)
    )
