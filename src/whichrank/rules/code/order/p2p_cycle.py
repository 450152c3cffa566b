"""Sends and receives that wait for each other.

What it finds: blocking send and recv calls in an order in which ranks wait in a cycle: everybody sends first,
a ring without parity, a pipeline whose stages start alike.

Why it happens: send returns when the other side has received (always on NCCL, for large messages elsewhere).
If all send first, nobody receives.

How it decides: the function is played through for four ranks, with conditions and peers computed from the
rank and the world size; a blocking send waits for its receive.

Example: `dist.send(x, (rank + 1) % world); dist.recv(y, (rank - 1) % world)` on all ranks.

Fix: let even ranks send first and odd ranks receive first, or use isend/irecv or batch_isend_irecv.

Limits: peers that can't be computed from the rank are not judged. Small messages on Gloo or MPI may be
buffered and get away with it.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules.code_findings import NO_PROGRAM, is_program, told

CODE = "LINT114"
CAUSE = "p2p-deadlock"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    if not is_program(case):
        return NO_PROGRAM
    found = []
    for pairing in case.pairings:
        if pairing.shape == "cycle":
            refs = (pairing.operation.ref, *(operation.ref for operation in pairing.others))
            message = f"These operations wait for each other: {pairing.said}."
            found.append(told(CODE, CAUSE, "hang", "error", Grade.PROVES, message, refs, FIX))
    return found


FIX = (
    "Let one side receive first (even ranks send, odd ranks receive, then the other way round).",
    "Or issue both halves together: dist.batch_isend_irecv([...]), or isend/irecv and wait for both.",
)
