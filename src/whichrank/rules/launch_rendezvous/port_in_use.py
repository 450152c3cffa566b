"""The rendezvous or store port is taken.

## What it finds
`EADDRINUSE` when torch's store or another server of the job begins to listen.

## Why it happens
A process of an earlier run still lives, a second job uses the same default port (29500) on a shared host, or the
program makes its own store a second time in every worker.

## How it decides
The store's error, or errno 98 in an exception. If several ranks of one host report it, they compete with each
other.

## Example
`The server socket has failed to listen on any local network address. port: 29500, … name: EADDRINUSE`

## Fix
End the leftover process (`ss -ltnp | grep 29500`), or let the port be chosen: `torchrun --rdzv-backend=c10d
--rdzv-endpoint=localhost:0`, another `--master-port`.

## Limits
The message does not say who holds the port.
"""

from __future__ import annotations

from whichrank.facts.shapes import BOUND
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.events.startup import StoreError
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import exceptions, statements
from whichrank.timeline.job_state.statements import Statement

CODE = "LNCH103"
CAUSE = "port-in-use"


def _claim(port: int | None) -> Claim:
    shown = port if port is not None else "PORT"
    return Claim(
        CODE,
        CAUSE,
        fix=(
            f"See who holds the port (ss -ltnp | grep {shown}) and end it if it is left over from an earlier run.",
            "Or take another port: --master-port, or --rdzv-backend=c10d --rdzv-endpoint=localhost:0 on one node.",
            "If a new port does not help, the program sets MASTER_PORT itself or makes a second store.",
        ),
        next=(NextStep(f"ss -ltnp | grep {shown}", "names the process that holds the port", (CAUSE,), "none"),),
    )


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    store = statements.of_kind(case, StoreError, where=lambda e: e.what == "port_in_use")
    store = [s for s in store if not statements.went_on(case, s)]
    words = statements.said(case, "[Errno 98]", "Address already in use", "address already in use")
    words += statements.beside([*store, *words], statements.known(case, CAUSE))
    signs = statements.first_to_fail([*store, *[s for s in words if not statements.went_on(case, s)]])
    if not signs:
        return []
    ranks = statements.unless_all(case, statements.ranks_of(signs))
    port = next((p for s in signs if (p := _port(s)) is not None), None)
    message = (
        f"{building.who(case, ranks, signs)} could not listen on port {port if port is not None else '?'}: it is taken."
    )
    sure = Grade.PROVES if store else Grade.HINTS if exceptions.only_logged(case) else Grade.SUPPORTS
    return [building.found(case, _claim(port), signs, message, sure, ranks)]


def _port(sign: Statement) -> int | None:
    told = sign.event.port if isinstance(sign.event, StoreError) else None
    bound = BOUND.search(sign.text) if told is None else None
    return int(bound[1]) if bound else told
