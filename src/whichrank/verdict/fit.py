"""Whether a finding fits the state of the job: what the state proves excludes a finding that contradicts it."""

from __future__ import annotations

import re

from whichrank.facts.interventions import ONE_HOST
from whichrank.facts.taxonomy import causes
from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade
from whichrank.model.moments import rfc3339_ns
from whichrank.model.verdict import Argument
from whichrank.records.events.base import Event
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import trials
from whichrank.timeline.job_state.outcome import at_work

_LINE = re.compile(r"line (\d+)")
_STOPS = ("hang", "crash")
_SLACK_NS = 60_000_000_000
"""Log stamps of different hosts and of the kernel agree to within this."""


def against(case: Case, finding: Finding) -> Argument | None:
    """What the state of the job says against a finding; None where the two fit."""
    if finding.category in _STOPS and case.finish is not None:
        return Argument("", Grade.CONTRADICTS, None, f"the run finished: {case.finish.ref.quote}", (case.finish.ref,))
    if finding.category in _STOPS and (working := at_work(case)) is not None and _before(finding, working):
        return Argument("", Grade.CONTRADICTS, None, f"the job went on: {working.ref.quote}", (working.ref,))
    # What people report speaks only against what is not proven otherwise.
    if finding.grade < Grade.PROVES and (trial := trials.ruled_out(case, finding.cause)) is not None:
        said = f"“{trial.change}” was tried: it {trial.outcome if trial.change != ONE_HOST else 'works there'}"
        return Argument("", Grade.CONTRADICTS, None, said, (trial.ref,))
    if finding.cause in causes() and causes()[finding.cause].phase == "launch" and finding.category != "config":
        return _trained(case, finding)
    return None


def _before(finding: Finding, working: Event) -> bool:
    """Whether all of it stands in the same file, above the lines of a job at work."""
    lines = [_LINE.match(ref.locator) for ref in finding.evidence if ref.source == working.ref.source]
    return len(lines) == len(finding.evidence) > 0 and all(m and int(m[1]) < working.line for m in lines)


def _trained(case: Case, finding: Finding) -> Argument | None:
    """A launch cause can't explain a job that trained afterwards."""
    said = _newest(finding)
    for progress in case.progress:
        steps = [int(step) for step, at in zip(progress.step, progress.time_ns, strict=True) if _later(int(at), said)]
        if said is not None and len(set(steps)) >= 3:
            ref = Ref(progress.source, f"line {int(progress.line[-1])}", f"step {steps[-1]}")
            return Argument("", Grade.CONTRADICTS, None, "training went on after it", (ref,))
    if case.has_dumps and case.lineup is not None and len(case.lineup):
        finished = _world_collectives(case)
        newest = int(case.lineup.created.max())
        if finished >= 2 and (said is None or newest > said + _SLACK_NS):
            at = rfc3339_ns(newest)
            return Argument(
                "", Grade.CONTRADICTS, None, f"{finished} collectives of all ranks finished, the last known at {at}"
            )
    return None


def _newest(finding: Finding) -> int | None:
    return finding.onset_ns


def _later(at: int, said: int | None) -> bool:
    return bool(at) and said is not None and at > said + _SLACK_NS


def _world_collectives(case: Case) -> int:
    """How many operations of a group of all ranks finished."""
    lineup = case.lineup
    if lineup is None:
        return 0
    whole = [i for i, group in enumerate(lineup.groups) if len(group.members) == case.world and case.world > 1]
    return sum(len({int(s) for s in lineup.seq[(lineup.group == group) & lineup.done]}) for group in whole)
