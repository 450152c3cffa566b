"""A send or recv without a partner.

## What it finds
A rank waits in a send or recv whose other half was never posted, or was posted with another size.

## Why it happens
A skipped micro-batch on one stage, a schedule that differs between stages, a wrong peer or tag, different tensor
sizes on the two sides.

## How it decides
Sends and receives are paired in order for each directed pair of ranks. The peer is named when it went on without
posting its half (its earlier steps or its siblings did post it there), or when it stopped altogether.

## Example
Rank 4 waits in `recv 4<-0` at `pipeline.py:203`; rank 0 went on to `all_reduce #12` without the send.

## Limits
The first message of a pair is not recorded if it hangs (NCCL makes the pair's communicator first); Gloo records none.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.troubles.trouble import Trouble

CODE = "COLL107"
CAUSE = "p2p-unmatched"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None:
        return NotEvaluated("flight-recorder dumps")
    return [_finding(case, t) for t in case.troubles if _applies(t)]


def _applies(trouble: Trouble) -> bool:
    return trouble.shape == "send-missing" or (trouble.shape == "stopped" and trouble.meeting.p2p)


def _finding(case: Case, trouble: Trouble) -> Finding:
    lineup = wording.lineup_of(case)
    here = set(trouble.meeting.joined)
    waiting = trouble.meeting.joined[min(here - set(trouble.ranks) or here)]
    waiter = int(lineup.rank[waiting])
    text = f"{wording.who(case, waiter).capitalize()} waits in {wording.step(lineup, waiting)}"
    peer = wording.culprits_text(case, trouble.ranks)
    if trouble.shape == "stopped":
        text += f"; {peer} never posted the other half and issues nothing more"
    elif trouble.meeting.disagrees:
        text += "; the other half was posted with another size or type"
    elif trouble.acted is not None:
        text += f"; {peer} never posted the other half and went on to {wording.step(lineup, trouble.acted)}"
    certain = trouble.shape == "send-missing"
    acted = trouble.acted if trouble.acted is not None else waiting
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=trouble.graded(Grade.SUPPORTS if certain else Grade.HINTS),
        kind="records",
        subject=Subject(
            ranks=trouble.ranks,
            code=(
                *wording.place(lineup, acted, int(lineup.rank[acted])),
                *wording.place(lineup, waiting, waiter),
            ),
        ),
        message=text + ".",
        evidence=wording.evidence(lineup, trouble),
        victims=tuple(r for r in trouble.victims if r not in trouble.ranks),
        onset_ns=wording.onset(case, trouble),
        alternatives=()
        if certain
        else (Alternative("rank-stuck-in-user-code", "the peer may be held up before it posts its half"),),
        next=()
        if certain
        else (
            NextStep(
                "py-spy dump --nonblocking --pid PID",
                "shows where the peer is",
                ("p2p-unmatched", "rank-stuck-in-user-code"),
                "none",
            ),
        ),
        fix=fix(CAUSE),
    )
