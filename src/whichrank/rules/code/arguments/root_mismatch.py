"""Ranks that name different roots.

What it finds: `src` or `dst` of broadcast, reduce, gather or scatter that differs between ranks, or that is not in
the group.

Why it happens: `src=rank` reads like "from here", but all ranks have to name the same root. And `src` is a rank of the
whole job: where the ranks are cut into several groups, `src=0` is a member of the first one only.

How it decides: the root is followed like a value and computed for four ranks; arms of a branch with different
constants are compared. A constant root is found where the group is one of several: made in a loop, by
`new_subgroups` or by a mesh with several dimensions.

Example: `dist.broadcast(x, src=dist.get_rank())`.

Fix: name the same root on every rank; the rank to send from is the same number everywhere. Within a group name its
member: `group_src=0`, or `src=dist.get_global_rank(group, 0)`.

Limits: roots that are computed within explicit groups are not judged: they differ by right.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules.code_findings import on_disagreements

CODE = "LINT116"
CAUSE = "root-mismatch"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_disagreements(case, (CODE, CAUSE), "root", Grade.PROVES, FIX)


FIX = (
    "Name the same root on every rank; the rank to send from is the same number everywhere. "
    "Within a group name its member: group_src=0, or src=dist.get_global_rank(group, 0)."
)
