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
from whichrank.rules.code_findings import on_disagreements

CODE = "LINT116"
CAUSE = "root-mismatch"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_disagreements(case, (CODE, CAUSE), "root", 0.9, FIX)


FIX = "Name the same root on every rank; the rank to send from is the same number everywhere."
