"""Not all processes came to the start, by the words of the store.

## What it finds
The store that counts fewer clients than it waits for, or a rendezvous that fewer nodes reached.

## Why it happens
A process failed before it came there, a node was not started, or can not reach the store.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`Timed out after 901 seconds waiting for clients. 7/8 clients joined.`

## Fix
Look for the ranks that are missing: did their processes start, and what did they print? See that every node was
started with the same endpoint and can reach it.

## Limits
The store does not know who is missing.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import crashes, sighted
from whichrank.rules.crashes import Claim
from whichrank.rules.sighted import Seen
from whichrank.timeline.case import Case

CODE = "LNCH202"
CAUSE = "missing-rank-at-init"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Look for the ranks that are missing: did their processes start, and what did they print?",
        "See that every node was started with the same endpoint and can reach it.",
    ),
    category="hang",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not crashes.heard(case):
        return crashes.SILENT
    told = [*sighted.of_cause(case, CAUSE), *_short(case)]
    if not any(s.signature.role == "root" for s in told):
        return []
    sure = sighted.confidence(told)
    return [sighted.tell_of(case, _CLAIM, "Not all processes came to the start: {what}.", told, sure)]


def _short(case: Case) -> list[Seen]:
    """The start barrier gave up and counts fewer workers than there are ranks."""
    counted = sighted.seen(case, "torch-store-barrier")[-1:]
    gave_up = [s for s in counted if "Timed out" in s.sign.text or "timed out" in s.sign.text]
    return [s for s in gave_up if int(s.group("workers")) < int(s.group("world"))]
