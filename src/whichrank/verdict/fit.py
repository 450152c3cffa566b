"""Whether a finding fits the state of the job: what the state proves excludes a finding that contradicts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichrank.facts.taxonomy import causes
from whichrank.model.findings import Finding, Grade
from whichrank.model.late_pattern import late
from whichrank.model.verdict import Argument
from whichrank.records.events.base import Event
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import trials
from whichrank.timeline.job_state.outcome import at_work

if TYPE_CHECKING:
    from whichrank.timeline.job_state.measured import Outlier

_STEADY = 3
"""Measurements that show that a rank is late each time."""
_LINE = late(r"line (\d+)")
_STOPS = ("hang", "crash")
_BEFORE_WORKERS = ("rendezvous-endpoint",)


def against(case: Case, finding: Finding) -> Argument | None:
    """What the state of the job says against a finding; None where the two fit."""
    if case.finish is not None and (
        finding.category in _STOPS or _is_a_warning(case, finding) or _only_asked(case, finding)
    ):
        return Argument("", Grade.CONTRADICTS, None, f"the run finished: {case.finish.ref.quote}", (case.finish.ref,))
    if finding.category in _STOPS and (working := at_work(case)) is not None and _before(finding, working):
        return Argument("", Grade.CONTRADICTS, None, f"the job went on: {working.ref.quote}", (working.ref,))
    if finding.category == "hang" and (steady := _always_late(case, finding)) is not None:
        return steady
    # What people report speaks only against what is not proven otherwise.
    if finding.grade < Grade.PROVES and (trial := trials.ruled_out(case, finding.cause)) is not None:
        from whichrank.facts.interventions import ONE_HOST

        said = f"“{trial.change}” was tried: it {trial.outcome if trial.change != ONE_HOST else 'works there'}"
        return Argument("", Grade.CONTRADICTS, None, said, (trial.ref,))
    launch = finding.cause in causes() and causes()[finding.cause].phase == "launch" and finding.category != "config"
    if launch and not _seen_in_stacks(case, finding):
        from whichrank.timeline.job_state.exceptions import agent_had_workers
        from whichrank.timeline.job_state.phases import trained_after

        trained = trained_after(case, finding.onset_ns)
        if trained is None and finding.cause in _BEFORE_WORKERS and agent_had_workers(case):
            trained = ("the agent had reached the rendezvous, and its workers ran", ())
        return Argument("", Grade.CONTRADICTS, None, *trained) if trained is not None else None
    return None


def _always_late(case: Case, finding: Finding) -> Argument | None:
    """Why a moment in which others waited for these ranks is no standstill: they are late at every step, and nothing
    timed out."""
    ranks = finding.subject.ranks
    of_a_moment = finding.kind in ("stacks", "records") and not (case.timed_out or case.has_dumps)
    if not (ranks and case.rank_values and of_a_moment):
        return None
    from whichrank.timeline.job_state import measured

    found = next((outlier for outlier in measured.slow(case.rank_values, {}) if _is_of(outlier, ranks)), None)
    if found is None:
        return None
    said = f"late at every step: {found.name} {found.theirs:g}, on the other ranks {found.typical:g}"
    return Argument("", Grade.CONTRADICTS, None, said, found.refs)


def _is_of(outlier: Outlier, ranks: tuple[int, ...]) -> bool:
    late = tuple(sorted({rank for member in outlier.members for rank in member.ranks}))
    return outlier.times >= _STEADY and late == ranks


def _seen_in_stacks(case: Case, finding: Finding) -> bool:
    """Whether a stack shows it: that is where the rank is now, whatever the job did before."""
    taken = {stack.source for stack in case.stacks.values()}
    return bool(finding.subject.ranks) and any(ref.source in taken for ref in finding.evidence)


def _is_a_warning(case: Case, finding: Finding) -> bool:
    """What a library only says of its settings, in a job of which nobody complains."""
    warns = finding.category == "config" and finding.kind == "messages" and finding.grade < Grade.PROVES
    return warns and not case.complaints


def _only_asked(case: Case, finding: Finding) -> bool:
    """What a person names beside the output of a run that finished, and does not say that it was slow or wrong: who
    quotes the output repeats it, which proves no more than the output does."""
    from whichrank.timeline.job_state import known_messages

    if finding.kind != "reports" or case.finish is None or case.trials:
        return False
    if any(ref.source == case.finish.source for ref in finding.evidence):
        return False
    suffers = any(complaint.category not in _STOPS for complaint in case.complaints)
    return not suffers and not known_messages.seen(case, "told-slow")


def _before(finding: Finding, working: Event) -> bool:
    """Whether all of it stands in the same file, above the lines of a job at work, or began before by the clock."""
    lines = [_LINE.match(ref.locator) for ref in finding.evidence if ref.source == working.ref.source]
    if not lines and finding.onset_ns is not None and working.time_ns is not None:
        return finding.onset_ns < working.time_ns
    return len(lines) == len(finding.evidence) > 0 and all(m and int(m[1]) < working.line for m in lines)
