"""A finding joined with what the state of the job knows: whose it is, what was observed, what a rank was handling.

A job whose ranks timed out in a collective while nobody had died hung, whatever the message would do elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from whichrank.facts.taxonomy import causes
from whichrank.model.findings import Finding
from whichrank.records.events.base import Event
from whichrank.records.events.processes import CudaError, NativeCrash, Traceback
from whichrank.timeline.job_state.handled import waits_for_a_lock, while_handling
from whichrank.timeline.job_state.outcome import observed
from whichrank.timeline.job_state.trials import said_category
from whichrank.timeline.job_state.whose import with_whom

if TYPE_CHECKING:
    from whichrank.timeline.case import Case
    from whichrank.timeline.job_state.statements import Statement

_ENDS_A_PROCESS = ("gpu-hardware", "cuda-fault", "rdma-fabric", "net-interface", "launch-rendezvous")
_KILLS = ("host-out-of-memory",)
_SPOILS = ("pcie-p2p",)
"""Copies between GPUs that go wrong stop a job, or spoil what it computes."""
_LEAVES_WAITING = ("gpu-fell-off-bus", "nvlink-fault")
"""Of these families, but a process whose GPU is gone does not end by it."""


def joined(case: Case, finding: Finding) -> Finding:
    """The finding with the ranks and the category that the rest of the evidence gives it."""
    for join in (with_whom, _observed, waits_for_a_lock, while_handling):
        finding = join(case, finding)
    return finding


def _observed(case: Case, finding: Finding) -> Finding:
    """A rank that is alive and does not come makes the others hang, also where its message is that of a crash."""
    cause = causes().get(finding.cause)
    if finding.category == "config" and finding.severity == "error" and (seen := observed(case)) is not None:
        return replace(finding, category=seen)
    spoils = cause is not None and cause.family in _SPOILS and finding.category in ("hang", "crash")
    if spoils and said_category(case) == "corruption":
        return replace(finding, category="corruption")
    if finding.category != "crash" or not finding.subject.ranks:
        return finding
    from whichrank.timeline.job_state.deaths import deaths
    from whichrank.timeline.job_state.statements import TIMED_OUT

    timed_out = [e for e in case.events(*TIMED_OUT) if e.rank is not None and e.rank not in finding.subject.ranks]
    if len(timed_out) < 2:
        return finding
    ends = cause is None or cause.family in _ENDS_A_PROCESS or finding.cause in _KILLS
    if ends and finding.cause not in _LEAVES_WAITING:
        return finding
    ended = [d.sign for d in deaths(case) if d.sign.rank in finding.subject.ranks]
    ended_before = any(_before(sign, timed_out) for sign in ended)
    raised = [*(e for e in case.events(Traceback) if not e.thread), *case.events(NativeCrash, CudaError)]
    by_itself = any(e.rank in finding.subject.ranks for e in raised)
    return finding if ended_before or by_itself else replace(finding, category="hang")


def _before(end: Statement, waited: Sequence[Event]) -> bool:
    """Whether a rank ended before the others gave up: by the clock, else by the lines of one output."""
    times = [e.time_ns for e in waited if e.time_ns is not None]
    if end.time_ns is not None and times:
        return end.time_ns < min(times)
    lines = [e.line for e in waited if e.ref.source == end.ref.source]
    return end.event is None or not lines or end.event.line < min(lines)
