"""A sub-group without the timeout of the job.

What it finds: `new_group` or `new_subgroups` without `timeout` in a program that gives init_process_group one.

Why it happens: new_group does not inherit it: the sub-group has the default (10 minutes on NCCL, 30 on Gloo).

How it decides: both calls in files of one program (up to 24 that import each other); a `functools.partial` that holds
the timeout counts, and so does `**options`.

Example: `init_process_group(timeout=timedelta(hours=2))` and `new_group([0, 1])`.

Fix: pass the same timeout to new_group.

Limits: whether the options that are passed on hold a timeout is not looked at.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.code_findings import on_habits

CODE = "LINT203"
CAUSE = ""


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_habits(case, (CODE, CAUSE), "no timeout", "info", FIX)


FIX = "Pass the same timeout to new_group."
