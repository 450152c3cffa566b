"""The watchdog thread itself is stuck, and the heartbeat monitor ends the process.

## What it finds
`watchdog got stuck for … seconds without making progress`, or a dump that failed because the interpreter lock was
held.

## Why it happens
A CUDA call that does not return (a wedged driver or GPU, a lock in the CUDA context), or a Python thread that holds
the interpreter lock in a blocking call. It is not a timeout of a collective.

## How it decides
The heartbeat monitor's own words; the ranks that print them are named unless all do. A rank that also reports a GPU
fault is explained by that.

## Example
`ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.`

## Fix
Look at the kernel log for an Xid and at `nvidia-smi`; take the native stacks of that rank. Raise
`TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC` only where the rank was legitimately busy in one call.

## Limits
The monitor does not know which call blocks.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.events.watchdog import GilHeld, WatchdogStuck
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.stuck import standings
from whichrank.timeline.job_state import statements

CODE = "CUDA105"
CAUSE = "watchdog-blocked"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "Look for a wedged GPU on that host first: the kernel log (Xid) and nvidia-smi.",
        "Then take its native stacks: a thread in a CUDA call, or one that holds the interpreter lock, is the reason.",
    ),
    blames="gpu",
    alternatives=(
        ("gpu-kernel-stuck", "a kernel that never ends blocks calls that synchronise"),
        ("rank-stuck-in-user-code", "a thread may hold the interpreter lock in a blocking call"),
    ),
    next=(
        NextStep(
            "py-spy dump --native --nonblocking --pid PID", "shows the call that does not return", (CAUSE,), "none"
        ),
        NextStep("dmesg -T | grep -i xid", "an Xid means hardware or driver", ("xid-gpu-fault",), "none"),
    ),
)


_HELD = Claim(
    CODE,
    "rank-stuck-in-user-code",
    category="hang",
    fix=(
        "Take its stack with C frames: one thread keeps Python's lock, in a regular expression or an extension.",
        "Bound that call: a simpler pattern, a time limit, another process.",
    ),
    alternatives=(
        (CAUSE, "the call may be one of CUDA that does not return"),
        ("gpu-kernel-stuck", "a kernel that never ends blocks calls that synchronise"),
    ),
    next=_CLAIM.next,
)
"""Its watchdog still speaks, and says that the rank has issued nothing new."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    stuck = statements.of_kind(case, WatchdogStuck)
    held = statements.of_kind(case, GilHeld)
    if not stuck and not held:
        return []
    signs = statements.first_to_fail(stuck) if stuck else held
    ranks = statements.unless_all(case, statements.ranks_of(signs))
    told = [s.event.seconds for s in signs if isinstance(s.event, WatchdogStuck)]
    seconds = next((n for n in told if n is not None), None)
    how = f" for {seconds} seconds" if seconds else ""
    what = f"The NCCL watchdog of {_whose(case, ranks)} was stuck{how}" if stuck else (
        f"A thread of {_whose(case, ranks)} held Python's interpreter lock"
    )  # fmt: skip
    standing = standings(case) if ranks and not stuck else None
    if standing is not None and set(ranks) <= standing.behind.keys():
        late = [statements.statement(case, standing.behind[rank]) for rank in ranks]
        message = f"{what} and did not come to the collective in which the others wait."
        return [building.found(case, _HELD, [*signs, *late], message, Grade.SUPPORTS, ranks)]
    sure = Grade.SUPPORTS if stuck else Grade.HINTS
    return [building.found(case, _CLAIM, signs, f"{what}: a CUDA call or the interpreter lock blocks it.", sure, ranks)]


def _whose(case: Case, ranks: tuple[int, ...]) -> str:
    return building.whose(case, ranks) if ranks else "the ranks"
