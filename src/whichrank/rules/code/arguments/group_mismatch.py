"""Ranks that name groups which don't fit together.

What it finds: a collective whose group differs between ranks, where a member of one rank's group uses another group.

Why it happens: groups overlap, or the condition that picks one does not follow their members. The rank in both
groups calls its own operation, and the members of the other group wait for it.

How it decides: the members of every group are computed for four ranks, where they are written out; each member of
a rank's group has to use that same group.

Example: `group = left if rank < 2 else right` with `left = new_group([0, 1])` and `right = new_group([1, 2, 3])`.

Fix: let all members of a group call the operation with that group; groups of one kind must not overlap.

Limits: groups whose members can't be computed are not judged.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules.code_findings import NO_PROGRAM, is_program, told

CODE = "LINT123"
CAUSE = "conditional-collective"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    if not is_program(case):
        return NO_PROGRAM
    found = []
    for apart in case.disagreements:
        if apart.about == "group":
            refs = (apart.operation.ref, *(reason.ref for reason in apart.reasons))
            message = f"Ranks disagree in {apart.operation.name}: {apart.said}."
            found.append(told(CODE, CAUSE, "hang", "error", Grade.PROVES, message, refs, (FIX,)))
    return found


FIX = "Let all members of a group call the operation with that group; groups of one kind must not overlap."
