"""The launcher was killed, and with it the store and the one who looks after the ranks.

## What it finds
Jobs whose launcher (torchrun's agent) was ended by a signal that it can't pass on, while no rank had failed before.

## Why it happens
Somebody killed it by hand or by a script, or the kernel took it for lack of memory. The ranks live on without a
parent; the agent hosts the store of a single-node job, so they fail at the next thing they ask of it.

## How it decides
By the signal that ended the launcher, as the watcher saw it. Signals that a launcher is meant to hear (SIGTERM,
SIGINT) are not counted: these end a job from outside. A rank that ended by a signal of its own before is the cause
then, not the launcher.

## Example
`the launcher (process 4711) ended by signal 9`

## Fix
Find out who killed it: the kernel's log for the OOM killer, the scheduler's for a limit. End the ranks that are left.

## Limits
Who sent the signal is not known.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.events.launchers import LauncherEnded
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import deaths, statements

CODE = "LNCH108"
CAUSE = "store-lost"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Find out who killed the launcher: the kernel's log (OOM killer), the scheduler's, the history of the shell.",
        "End the ranks that are left before the job is started again: they hold their GPUs and ports.",
    ),
    alternatives=(("job-ended-from-outside", "whoever killed the launcher may have meant the whole job"),),
    next=(
        NextStep(
            "dmesg --time-format iso | grep -i -E 'killed process|out of memory'",
            "tells whether the kernel ended the launcher",
            ("host-out-of-memory",),
            "none",
        ),
    ),
)
_MEANT = (2, deaths.TERMINATE)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    ended = statements.of_kind(case, LauncherEnded, where=lambda e: e.signal not in _MEANT)
    if not case.log_events:
        return NotEvaluated("what became of the launcher")
    own = [d for d in deaths.deaths(case) if d.signal in (deaths.KILL, deaths.ABORT, *deaths.NATIVE)]
    if not ended or any(d for d in own if not d.by_launcher):
        return []
    number = ended[0].event.signal if isinstance(ended[0].event, LauncherEnded) else None
    message = f"The launcher was killed (signal {number}), and the ranks lost their store and their parent with it."
    return [building.found(case, _CLAIM, ended, message, Grade.SUPPORTS)]
