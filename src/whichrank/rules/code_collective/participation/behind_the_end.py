"""The training was over when ranks timed out, or their watchdogs were stuck: they hang in what comes behind it.

## What it finds
Logs in which the training says that it is done, or ranks that they leave, and in which watchdogs give up behind that.

## Why it happens
One rank calls something behind the training that needs all of them (it saves a model under `if rank == 0`, a last
barrier), or groups are not destroyed and their threads and communicators wait for each other at exit.

## How it decides
Every line of a watchdog stands behind the words of the end, by the clock or in the same file, and nothing was raised
before. A watchdog that is stuck supports it, a timeout hints at it. The ranks that say so are candidates: whoever they
wait for may have left.

## Example
    `Trainer.fit` stopped: `max_epochs=3` reached.
    [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, NumelIn=1 …

## Limits
An evaluation or an upload behind the training looks alike: the stacks tell.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.events.base import Event
from whichrank.records.events.processes import Traceback
from whichrank.records.events.run_state import RunFinished
from whichrank.records.events.startup import GroupTeardown
from whichrank.records.events.watchdog import WatchdogStuck, WatchdogTimeout
from whichrank.rules import wording
from whichrank.timeline.case import Case

CODE = "COLL151"
CAUSE = "teardown-hang"

_OTHERS = (
    Alternative("rank0-only-collective", "a call behind the training may stand under a condition on the rank"),
    Alternative("rank-stuck-in-checkpoint", "the last checkpoint may still be written"),
)
_NEXT = (NextStep("whichrank stacks", "tells what the ranks that are left wait in", (CAUSE,), "none"),)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    stuck = case.events(WatchdogStuck)
    waits: list[Event] = [*stuck, *case.events(WatchdogTimeout)]
    if not waits:
        return NotEvaluated("words of a watchdog that gave up")
    leaves: list[Event] = [event for event in case.events(GroupTeardown) if event.what != "destructor"]
    leaves += [event for event in case.sightings if event.signature == "torch-not-destroyed"]
    # What one rank says of itself is no end of all.
    leaves += [event for event in case.events(RunFinished) if event.how == "words" and event.rank is None]
    raised = any(not _behind(event, wait) for event in case.events(Traceback) for wait in waits)
    late = all(any(_behind(wait, leave) for leave in leaves) for wait in waits)
    return [_finding(case, waits, bool(stuck))] if late and not raised else []


def _behind(event: Event, other: Event) -> bool:
    if event.time_ns is not None and other.time_ns is not None:
        return event.time_ns > other.time_ns
    return event.ref.source == other.ref.source and event.line > other.line


def _finding(case: Case, waits: list[Event], stuck: bool) -> Finding:
    ranks = tuple(sorted({event.rank for event in waits if event.rank is not None}))
    ranks = ranks if len(ranks) < case.world else ()
    who = wording.culprits_text(case, ranks).capitalize() if ranks else "The ranks"
    verb = "does" if len(ranks) == 1 else "do"
    how = "a watchdog was stuck" if stuck else "it timed out" if len(ranks) == 1 else "they timed out"
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=Grade.SUPPORTS if stuck else Grade.HINTS,
        kind="messages",
        subject=Subject(candidates=ranks),
        message=f"The training was over, and {who[0].lower()}{who[1:]} {verb} not end: {how} behind it.",
        evidence=tuple(event.ref for event in waits)[:4],
        alternatives=_OTHERS,
        fix=fix(CAUSE),
        next=_NEXT,
    )
