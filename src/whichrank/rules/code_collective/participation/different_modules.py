"""Ranks ran different modules under ZeRO-3, according to DeepSpeed.

## What it finds
A job that timed out in gathering parameters after the order of its modules had changed.

## Why it happens
ZeRO-3 gathers the parameters of a module when it runs. Ranks that run other modules (an expert without tokens, a vision
tower without images) gather other parameters, and the gathers don't meet.

## How it decides
DeepSpeed said that the order of modules changed ("Invalidate trace cache"), and ranks timed out in an all-gather or a
reduce-scatter.

## Example
    Invalidate trace cache @ step 1: expected module 25, but got module 323

## Fix
Let every rank run every module, with a dummy input where it has none.

## Limits
The order may change on all ranks alike, which costs time and no more; then the timeout has another cause.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.records.events.watchdog import WatchdogTimeout
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements

CODE = "COLL207"
CAUSE = "conditional-collective"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "Let every rank run every module, with a dummy input of weight zero where it has none.",
        "For mixtures of experts: deepspeed.utils.set_z3_leaf_modules on the block that holds them.",
    ),
    alternatives=(("collective-desync", "the order may have changed on all ranks alike"),),
)
_GATHERS = ("GATHER", "REDUCE_SCATTER")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    # At step 0 it changes in every run: what is gathered first is not what runs first.
    changed = [s for s in known_messages.seen(case, "deepspeed-trace-cache") if s.group("step") != "0"]
    waits = [e for e in case.events(WatchdogTimeout) if any(g in e.op.upper() for g in _GATHERS)]
    if not changed or not waits or case.has_dumps:
        return []
    signs = [*(s.sign for s in changed[-2:]), *(statements.statement(case, event) for event in waits)]
    message = "Ranks time out gathering parameters after the order of the modules changed: they may run different ones."
    return [building.about(building.found(case, _CLAIM, signs, message, Grade.HINTS), Subject())]
