"""A collective in an `except` or `finally` block.

What it finds: a barrier or another collective that runs when an exception was raised.

Why it happens: clean-up code waits for everybody (`finally: dist.barrier()`), but only the rank that failed
is there; the others are still training. The error turns into a hang, and its message is lost until the
timeout.

How it decides: handlers and `finally` blocks are searched for collectives. A handler that makes the same call
as the body (a fallback) is fine, and so are handlers of errors that all ranks share. A `finally` behind a
handler that catches everything runs on all ranks and is fine. What `__exit__` calls whatever happened counts as
`finally`.

Example: `try: train() except RuntimeError: dist.barrier()`.

Fix: let the error end the process: the launcher ends the others. destroy_process_group() in `finally` is
fine.

Limits: an exception that all ranks raise at the same place would make it right; that can't be seen.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.code import Parting
from whichrank.rules.code_findings import Said, on_partings, shown

CODE = "LINT108"
CAUSE = "conditional-collective"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_partings(case, (CODE, CAUSE), lambda parting: parting.shape in {"except", "finally"}, _say)


def _say(parting: Parting) -> Said:
    message = (
        f"{shown(parting.concerned)} in `{parting.shape}`: a rank that failed waits here for ranks that did not, "
        "so an error becomes a hang."
    )
    fix = "Take the collective out of the handler; let the error end the process, the launcher ends the others."
    return Said(message, (fix,))
