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
from whichrank.rules.code_words import NO_PROGRAM, habit, is_program

CODE = "LINT206"
CAUSE = ""


def judge(case: Any) -> list[Finding] | NotEvaluated:
    if not is_program(case):
        return NO_PROGRAM
    fix = ("Call dist.destroy_process_group() at the end of the program.",)
    return [habit(CODE, CAUSE, "info", found, fix) for found in case.habits if found.what == "never destroyed"]
