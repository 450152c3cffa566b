"""A container of the job was paused, and nobody let it go on.

## What it finds
A container that its runtime paused before the job stood still, and did not unpause.

## Why it happens
A backup that wants a still file system, a commit of the container, an operator. The processes exist and do not run:
nothing that they print says so, and the other ranks wait for them.

## How it decides
By the events of the container runtime: `container pause` without an `unpause` of the same container behind it, in a job
that stood still. If all ranks but one timed out, that one is named.

## Example
`podman[23344]: container pause 4be19d02f7ac (image=gan:0.9, name=gan-1)`

## Fix
`podman unpause NAME` or `docker unpause NAME`; let backups leave the containers of running jobs alone.

## Limits
Which ranks run in a container the events do not say.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements

CODE = "HOST160"
CAUSE = "rank-frozen"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    blames="host",
    fix=("Let it go on: podman unpause NAME, docker unpause NAME.", "Then find who paused it: a backup, a commit."),
    next=(NextStep("podman ps --filter status=paused", "lists what is still paused", (CAUSE,), "none"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    freed = {seen.group("container"): seen.event.line for seen in known_messages.seen(case, "container-unpaused")}
    paused = [
        seen
        for seen in known_messages.seen(case, "container-paused")
        if freed.get(seen.group("container"), -1) < seen.event.line
    ]
    if not paused or not known_messages.stands_still(case):
        return []
    missing = case.ranks_not_timed_out
    ranks = tuple(missing) if len(missing) == 1 else ()
    name = paused[0].group("name") or paused[0].group("container")[:12]
    message = f"The container {name} was paused and did not run again."
    found = building.found(case, _CLAIM, [seen.sign for seen in paused], message, Grade.SUPPORTS, ranks)
    return [replace(found, subject=replace(found.subject, hosts=())) if not ranks else found]
