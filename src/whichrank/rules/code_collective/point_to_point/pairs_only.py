"""A job that only sends messages stands still, and nothing tells which message is missing.

## What it finds
All communicators of the job have two ranks, and all ranks wait; or all ranks stand in `send` and `recv`.

## Why it happens
Pipelines, rings and servers with their clients use `send` and `recv` alone. One rank sends a message fewer than its
partner expects, or two wait for each other.

## How it decides
On NCCL a `send` or `recv` returns at once, and the rank waits at its next synchronising line: the lines at which ranks
wait don't tell who left something out. So nobody is accused: all that wait are candidates. Where the stacks of all
ranks stand in messages themselves, everybody waits for somebody who waits too: a circle. Where dumps or calls are at
hand, those tell more.

## Example
RAS lists 3 communicators of 2 ranks in a job of 4; the stacks stand at two lines of one function.

## Fix
Compare how many messages each rank sends with how many its partner expects; the flight recorder shows each of them.

## Limits
Without a RAS report or a log of NCCL nobody knows the communicators.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.set_ups import pairs_only
from whichrank.timeline.collectives.stuck import stack_ref
from whichrank.timeline.job_state.waiting_lines import all_in_messages, somebody_works

CODE = "COLL146"
CAUSE = "p2p-unmatched"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.stacks:
        return NotEvaluated("stacks of all ranks")
    shown, in_messages = pairs_only(case), all_in_messages(case)
    if not shown and not in_messages:
        return NotEvaluated("communicators of two ranks alone")
    waiting = tuple(rank for rank, activity in case.activities.items() if activity.doing == "waiting")
    if case.troubles or case.goes_on or somebody_works(case) or len(waiting) < max(case.world, 2):
        return []
    if in_messages:
        return [_circle(case, tuple(sorted(waiting)))]
    return [
        Finding(
            code=CODE,
            cause=CAUSE,
            category="hang",
            severity="error",
            grade=Grade.HINTS,
            kind="records",
            subject=Subject(candidates=tuple(sorted(waiting))),
            message="All ranks wait, and all communicators have two ranks, as messages make them: one message is "
            "missing, or two wait for each other. Nothing at hand tells which.",
            evidence=(*shown, *(stack_ref(case, rank) for rank in sorted(waiting)[:2])),
            alternatives=(Alternative("p2p-deadlock", "two ranks may wait for each other's messages"),),
            next=(
                NextStep(
                    "whichrank env --for debug", "settings that record every message, for the next run", (), "none"
                ),
            ),
            fix=fix(CAUSE),
        )
    ]


def _circle(case: Case, waiting: tuple[int, ...]) -> Finding:
    sends = sum("send" in case.activities[rank].collective for rank in waiting)
    return Finding(
        code=CODE,
        cause="p2p-deadlock",
        category="hang",
        severity="error",
        grade=Grade.HINTS,
        kind="stacks",
        subject=Subject(candidates=waiting),
        message=f"All {len(waiting)} ranks stand in messages, {sends} of them in a send: each waits for another one.",
        evidence=tuple(stack_ref(case, rank) for rank in waiting[:4]),
        alternatives=(Alternative("p2p-unmatched", "one message may have been left out"),),
        fix=fix("p2p-deadlock"),
    )
