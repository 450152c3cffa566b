"""Ranks that name different roots.

What it finds: `src` or `dst` of broadcast, reduce, gather or scatter that differs between ranks.

Why it happens: `src=rank` reads like "from here", but all ranks have to name the same root.

How it decides: the root is followed like a value and computed for four ranks; arms of a branch with different
constants are compared.

Example: `dist.broadcast(x, src=dist.get_rank())`.

Fix: name the same root on every rank; the rank to send from is the same number everywhere.

Limits: roots within explicit groups are not judged: they differ by right.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.code_words import NO_PROGRAM, is_program, told

CODE = "LINT116"
CAUSE = "root-mismatch"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    if not is_program(case):
        return NO_PROGRAM
    found = []
    for apart in case.disagreements:
        if apart.about == "root":
            refs = (apart.operation.ref, *(reason.ref for reason in apart.reasons))
            message = f"Ranks disagree in {apart.operation.name}: {apart.said}."
            fix = ("Name the same root on every rank; the rank to send from is the same number everywhere.",)
            found.append(told(CODE, CAUSE, "corruption", "error", 0.9, message, refs, fix))
    return found
