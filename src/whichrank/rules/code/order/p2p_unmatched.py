"""A send or receive without its other half.

What it finds: a send or recv whose peer never posts the matching call; isend and irecv too.

Why it happens: a wrong peer number, a branch that only one side takes, one receive fewer than sends.

How it decides: a program that nobody else calls is played through for four ranks; what is left waiting for a
rank that has finished has no partner, and neither has what was started and never met its other half.

Example: `if rank == 0: dist.send(x, 1)` without a recv on rank 1.

Fix: post the other half on the peer, with the same tag and group.

Limits: only where all conditions and peers on the way can be computed from the rank.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules.code_findings import NO_PROGRAM, is_program, told

CODE = "LINT115"
CAUSE = "p2p-unmatched"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    if not is_program(case):
        return NO_PROGRAM
    found = []
    for pairing in case.pairings:
        if pairing.shape == "unmatched":
            message = f"No partner: {pairing.said}."
            fix = ("Post the matching half on the peer, with the same tag and group.",)
            found.append(told(CODE, CAUSE, "hang", "error", Grade.PROVES, message, (pairing.operation.ref,), fix))
    return found
