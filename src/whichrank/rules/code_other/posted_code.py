"""The posted code or launch has a fault that fits what the job does.

## What it finds
Training code in a note, or beside the logs, in which ranks part ways around a collective, call it with other arguments,
or train past a wrapper; launch commands that don't fit together; where the logs alone don't tell why.

## Why it happens
A report holds a few lines of output, the script and the commands that started it. The output says that ranks wait; the
script or the commands say why.

## How it decides
Only where all else leaves the cause unknown or generic. `whichrank lint` reads the Python blocks of notes and the
Python files beside the logs (up to 64 KiB). An error that it finds supports its cause; a warning hints at
it, and only where ranks wait, or failed for nothing but a peer that had gone. `whichrank env lint` reads launch files
beside the logs and the commands in notes: other meeting points, sizes and numbers of hosts, more processes than GPUs.

## Example
    if rank == 0:
        metric = accelerator.gather(metric)

## Fix
That of the lint rule: `whichrank explain LINT101`, `whichrank explain ENV111`.

## Limits
The posted code may not be what ran: it never proves, and a rank is named only where the code names it.
"""

from __future__ import annotations

import re
from typing import cast

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, Category, CodePlace, Finding, Grade, NotEvaluated, Subject
from whichrank.records.second_looks import PostedFault
from whichrank.records.stack import main_thread
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import exceptions, known_messages
from whichrank.timeline.job_state.outcome import observed

CODE = "CODE211"
CAUSE = "unknown"

_MOST = 3
_ONE_RANK = re.compile(
    r"\brank\b[^=\n]{0,24}== ?(\d{1,5})\b"
    r"|\bis_(?:main|master|rank_?0|rank_zero|world_process_zero|global_zero)(?:_process)?\b",
    re.IGNORECASE,
)
"""What a condition says that holds on one rank alone."""
_CONTRARY = re.compile(r"\bnot\b|!=|\belse\b")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.posted:
        return NotEvaluated("posted code with a fault in it, and no surer verdict")
    seen = observed(case)
    waits = seen == "hang" or bool(known_messages.stands_still(case)) or _was_left(case, seen)
    was_launched = known_messages.has_run(case)
    posted = [fault for fault in case.posted if not (was_launched and _is_of_launch(fault))]
    fitting = [fault for fault in posted if _fits(fault, seen, waits)]
    if not fitting:
        return []
    first = fitting[0]
    others = {fault.cause: fault for fault in reversed(fitting) if fault.cause != first.cause}
    listed = tuple(
        Alternative(cause, f"{fault.file}:{fault.line} has this fault too")
        for cause, fault in list(others.items())[:_MOST]
    )
    what = "launch does not fit together" if _is_of_launch(first) else "posted code shows it"
    message = f"The {what} at {first.file}:{first.line}: {first.message}"
    ranks = _standing_at(case, first) or _named(first)
    return [
        Finding(
            code=CODE,
            cause=first.cause,
            category=seen or cast(Category, first.category),
            severity="error",
            grade=min(first.grade, Grade.SUPPORTS if first.severity == "error" else Grade.HINTS),
            kind="code",
            subject=Subject(ranks=ranks, code=(CodePlace(first.file, first.line),)),
            message=message,
            evidence=first.refs[:6],
            alternatives=listed,
            fix=(*first.fix, *fix(first.cause)),
        )
    ]


def _fits(fault: PostedFault, seen: Category | None, waits: bool) -> bool:
    """Whether a fault does what the job did: hangs where ranks wait, and no hang where a job crashed or was slow. Those
    that wait for a launch give up at last."""
    if _is_of_launch(fault):
        return seen in (None, fault.category) or (seen == "crash" and fault.category == "hang")
    if fault.category == "hang" or fault.cause.endswith("-mismatch"):
        return waits or (seen is None and fault.severity == "error")
    return fault.severity == "error" and seen in (None, fault.category)


def _is_of_launch(fault: PostedFault) -> bool:
    return fault.code.startswith("ENV")


def _was_left(case: Case, seen: Category | None) -> bool:
    """Whether ranks failed only because a peer had gone: it ended while they were in a call that needs it."""
    return seen == "crash" and bool(exceptions.lost_a_peer(case)) and not exceptions.own_exceptions(case)


def _named(fault: PostedFault) -> tuple[int, ...]:
    """The one rank that the condition names, where the code lets it alone make a call that all must make."""
    named = {int(match[1] or 0) for ref in fault.refs for match in _ONE_RANK.finditer(ref.quote[:400])}
    contrary = any(_CONTRARY.search(ref.quote[:400]) for ref in fault.refs)
    return tuple(named) if fault.cause == "rank0-only-collective" and len(named) == 1 and not contrary else ()


def _standing_at(case: Case, fault: PostedFault) -> tuple[int, ...]:
    """The ranks whose stacks stand at that line, unless all do, or the fault is no matter of who calls."""
    if fault.category != "hang":
        return ()
    name = fault.file.rpartition("/")[2]
    threads = {rank: main_thread(stack) for rank, stack in case.stacks.items()}
    there = [
        rank
        for rank, thread in threads.items()
        if thread and any((f.file.rpartition("/")[2], f.line) == (name, fault.line) for f in thread.frames)
    ]
    return tuple(sorted(there)) if 2 * len(there) < len(threads) else ()
