"""The output holds the verdict that `whichrank run` gave while the job was there.

## What it finds
The line `whichrank: the verdict: …` in the output of a job, the last one where there are several.

## Why it happens
The job was watched, and its output, with the report in it, is what was kept or sent on.

## How it decides
By that line. The verdict was made with the evidence of every rank at hand; what the output alone tells is less. What
the report quotes is not counted a second time.

## Example
`whichrank: the verdict: hang, rank0-only-collective, rank 0, 76 % sure`

## Fix
Diagnose the folder that the report names: it holds the evidence itself.

## Limits
It is as good as that verdict was. A later attempt of the same job may have failed of something else: where the output
tells that, it counts.
"""

from __future__ import annotations

from typing import cast

from whichrank.facts.taxonomy import causes
from whichrank.model.findings import Category, Finding, NextStep, NotEvaluated
from whichrank.model.grades import graded
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.known_messages import Seen
from whichrank.timeline.job_state.own_reports import BEGIN, END

CODE = "CODE203"
CAUSE = "unknown"
_NOTHING = ("healthy", "unknown")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = [
        s for s in known_messages.seen(case, BEGIN) if s.group("cause") in causes() and s.group("cause") not in _NOTHING
    ]
    if not told:
        return []
    last = max(told, key=lambda s: (s.event.ref.source, s.event.line))
    cause, ranks = last.group("cause"), tuple(map(int, last.group("ranks").split(",") if last.group("ranks") else ()))
    place = _place(case, last)
    claim = Claim(
        CODE,
        cause,
        fix=(f"whichrank explain {cause} tells what to do about it.",),
        category=cast(Category, last.group("category")),
        next=(NextStep(f"whichrank diagnose {place}", "the evidence behind this verdict", (cause,), "none"),),
    )
    message = f"whichrank judged this job while it was there: {cause}, {last.group('who')}."
    return [building.found(case, claim, [last.sign], message, graded(int(last.group("sure")) / 100), ranks)]


def _place(case: Case, verdict: Seen) -> str:
    """The folder that the report names at its end."""
    line, source = verdict.event.line, verdict.event.ref.source
    after = [s for s in known_messages.seen(case, END) if s.event.ref.source == source and s.event.line > line]
    return min(after, key=lambda s: s.event.line).group("place").strip() if after else "FOLDER"
