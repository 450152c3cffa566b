"""A setting that is made after it was read.

What it finds: variables of NCCL, torch or CUDA that the program sets after the process group was made, torch
was imported or CUDA was used.

Why it happens: libraries read a variable once.

How it decides: the statements are followed in the order in which they run, as `whichrank env lint` does,
through functions and methods of all files. Names that a method takes from the fields of its class
(`for f in fields(self): os.environ[f.name] = …`) are known.

Example: `os.environ['NCCL_DEBUG'] = 'INFO'` below `init_process_group`.

Fix: set it before, best where the job is launched.

Limits: names that are read from files or options are not known.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.code_findings import on_habits

CODE = "LINT204"
CAUSE = "wrong-environment"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_habits(case, (CODE, CAUSE), "set late", "warning", FIX)


FIX = "Set it before, best where the job is launched."
