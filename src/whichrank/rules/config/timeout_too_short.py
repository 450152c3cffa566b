"""The work was legitimate and progressing; the timeout was shorter than it needs.

## What it finds
A timeout of a collective in a job whose steps normally take about as long, or while a rank visibly went on
working.

## Why it happens
A short timeout set for debugging, a first step that compiles, an evaluation or a checkpoint that grows with the
model.

## How it decides
Only with positive evidence: the timeout is below a second, which the first operation of a job alone needs; the
training's own progress lines show earlier steps that lasted at least half as long as the timeout; or a rank that did
not time out itself printed further steps during the whole wait of the others.

## Example
Timeout 30 s; the last steps took 21, 26 and 24 s.

## Fix
`init_process_group(timeout=timedelta(minutes=…))`, and the same for `new_group`, which does not inherit it.

## Limits
Where the timeout is not below a second it needs progress lines with times, or with seconds per step.
"""

from __future__ import annotations

import numpy as np

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.records.events.base import Event
from whichrank.records.events.communication import GlooTimeout
from whichrank.records.events.watchdog import WatchdogTimeout
from whichrank.records.log import Progress
from whichrank.rules import building, wording
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import statements
from whichrank.timeline.job_state.statements import Statement

CODE = "CONF101"
CAUSE = "timeout-too-short"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "Raise the timeout above the longest step, evaluation and save: init_process_group(timeout=timedelta(…)).",
        "Give it to new_group() as well: groups do not inherit it.",
    ),
    alternatives=(
        ("straggler", "one rank may be slower than the rest"),
        ("collective-desync", "the last operation may have been missed for another reason"),
    ),
)
_MILLISECOND = 1_000_000
_ENOUGH = 3
_NO_TIME_MS = 1000


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told: list[WatchdogTimeout | GlooTimeout] = [*case.events(WatchdogTimeout), *case.events(GlooTimeout)]
    waits = [(event, limit) for event in told if (limit := _limit(event))]
    if not waits:
        return []
    event, limit = min(waits, key=lambda wait: wait[1])
    if limit < _NO_TIME_MS:
        message = f"The timeout is {limit} ms: the first operation of a job alone takes longer."
        return [building.found(case, _CLAIM, [statements.statement(case, event)], message, Grade.SUPPORTS)]
    if not case.progress:
        return NotEvaluated("the training's progress lines")
    slow = [step for progress in case.progress if (step := _long_step(progress, limit)) is not None]
    if slow:
        sign, seconds = max(slow, key=lambda step: step[1])
        message = f"Steps of this job take up to {seconds:.0f} s and the timeout is {limit / 1000:.0f} s."
        return [building.found(case, _CLAIM, [statements.statement(case, event), sign], message, Grade.HINTS)]
    busy = _still_working(case, event, limit)
    if not busy:
        return []
    ranks = statements.ranks_of(busy)
    who = wording.ranks_text(ranks).capitalize()
    message = f"{who} went on working while the others waited {limit / 1000:.0f} s and gave up."
    return [building.found(case, _CLAIM, [statements.statement(case, event), *busy], message, Grade.HINTS, ranks)]


def _limit(event: WatchdogTimeout | GlooTimeout) -> int | None:
    return event.timeout_ms if isinstance(event, WatchdogTimeout) else event.ms


def _line(progress: Progress, row: int, words: str) -> Statement:
    rank = int(progress.rank[row])
    named = rank if rank >= 0 else None
    return Statement(words, Ref(progress.source, f"line {int(progress.line[row])}", words, named), named)


def _long_step(progress: Progress, limit_ms: int) -> tuple[Statement, float] | None:
    """A step that lasted half the timeout or more, where at least three did."""
    half = limit_ms / 2000
    stated = np.nan_to_num(progress.seconds_per_step, nan=0.0)
    rows = np.flatnonzero(stated >= half)
    if len(rows) >= _ENOUGH:
        return _line(progress, int(rows[-1]), f"{stated[rows[-1]]:.1f} s per step"), float(stated[rows].max())
    timed = np.flatnonzero((progress.time_ns > 0) & (progress.step >= 0))
    if len(timed) <= _ENOUGH:
        return None
    took = np.diff(progress.time_ns[timed]) / 1e9
    steps = np.diff(progress.step[timed])
    long = np.flatnonzero((steps == 1) & (took >= half))
    if len(long) < _ENOUGH:
        return None
    row = int(timed[long[-1] + 1])
    return _line(progress, row, f"step {int(progress.step[row])} took {took[long[-1]]:.1f} s"), float(took[long].max())


def _still_working(case: Case, event: Event, limit_ms: int) -> list[Statement]:
    """Ranks without a timeout of their own that printed new steps through the whole wait."""
    if event.time_ns is None:
        return []
    timed_out = {e.rank for e in case.events(WatchdogTimeout, GlooTimeout)}
    begin, length = event.time_ns - limit_ms * _MILLISECOND, limit_ms * _MILLISECOND
    found = []
    for progress in case.progress:
        inside = (progress.time_ns > begin + length // 4) & (progress.time_ns <= event.time_ns) & (progress.rank >= 0)
        rows = np.flatnonzero(inside)
        fresh = len(np.unique(progress.step[rows])) >= _ENOUGH
        late = len(rows) > 0 and progress.time_ns[rows[-1]] > event.time_ns - length // 4
        if fresh and late and int(progress.rank[rows[-1]]) not in timed_out:
            row = int(rows[-1])
            found.append(_line(progress, row, f"step {int(progress.step[row])}"))
    return found
