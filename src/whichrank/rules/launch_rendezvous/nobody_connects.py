"""All ranks make their process group, each listens, and nobody is connected to anybody: they met in an old file.

## What it finds
A start in which every rank waits to be connected to, and none connects.

## Why it happens
`init_method="file://…"`, with a file that an earlier run has left: the ranks read addresses in it at which nobody
listens any more. By these addresses it is decided who connects to whom, and it may be that all are to wait.

## How it decides
By stacks and connections of all ranks: each is in the creation of its group and listens, none has a connection, neither
to another rank nor to a store. With a store over TCP every rank would have one.

## Example
Ranks 0 and 1 are in `init_process_group`, listen at ports 41531 and 36653, and have no connection at all.

## Fix
Remove the file before every start, or give it a name of its own for each run; or meet at an address (`env://`).

## Limits
Needs the connections of the ranks, as `whichrank run` and `collect` take them.
"""

from __future__ import annotations

from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.network import TcpSocket
from whichrank.records.stack import main_thread
from whichrank.timeline.case import Case

CODE = "LNCH110"
CAUSE = "stale-lock-or-store"

_MAKING = "_new_process_group_helper"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    sockets = case.hardware.sockets_of_ranks()
    if len(sockets) < 2:
        return NotEvaluated("the connections of the ranks (whichrank run takes them)")
    if len(sockets) < case.world or not all(_waits(case, rank, own) for rank, own in sockets.items()):
        return []
    return [
        Finding(
            code=CODE,
            cause=CAUSE,
            category="hang",
            severity="error",
            grade=Grade.SUPPORTS,
            kind="host",
            subject=Subject(),
            message="All ranks create their process group and wait for a connection, and none has one: "
            "they met in a file that an earlier run may have left.",
            evidence=tuple(own[0].ref for _, own in sorted(sockets.items())[:4]),
            alternatives=(
                Alternative("wrong-interface", "the ranks may have told each other addresses of another network"),
                Alternative("firewall", "something may drop what they send"),
            ),
            next=(
                NextStep("ls -l FILE", "of init_method: is it older than this run?", ("stale-lock-or-store",), "none"),
            ),
            fix=(
                "Remove the file of init_method before every start, or give it a new name for each run.",
                "Or meet at an address: init_method='env://' with MASTER_ADDR and MASTER_PORT.",
            ),
        )
    ]


def _waits(case: Case, rank: int, own: list[TcpSocket]) -> bool:
    """It is in the making of a group, listens, and has no connection."""
    stack = case.stacks.get(rank)
    thread = main_thread(stack) if stack is not None else None
    if thread is None:
        return False
    inside = any(frame.function == _MAKING for frame in thread.frames)
    return inside and all(socket.state == "LISTEN" for socket in own)
