"""A process group that is never destroyed.

What it finds: a program with init_process_group and without destroy_process_group.

Why it happens: torch warns at exit, and a rank that leaves early can take the store or the connections with
it.

How it decides: both calls in one file that is a program.

Example: `main()` ends after the last step.

Fix: call dist.destroy_process_group() at the end of the program.

Limits: only within one file.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.code_findings import on_habits

CODE = "LINT206"
CAUSE = ""


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_habits(case, (CODE, CAUSE), "never destroyed", "info", FIX)


FIX = "Call dist.destroy_process_group() at the end of the program."
