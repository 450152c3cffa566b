"""An exception on one rank that is caught together with a collective.

What it finds: a `try` whose body holds a collective behind something that can fail on one rank alone, with a
handler that goes on.

Why it happens: metrics, logging and single bad batches must never end the training, so the error is caught.
The rank that failed skipped the collective; the others wait in it.

How it decides: the body is searched for calls that can fail locally (reading files, parsing, functions of the
project that raise, a forward pass that runs out of memory) with a collective behind them. Handlers that raise
again, that make the same collectives, or that name only errors which all ranks share (ImportError,
AttributeError, StopIteration…) are fine. `with contextlib.suppress(…)` counts as a handler, and a decorator that
calls the function again (`@retry`) as one around the whole function.

Example: `try: auc = roc_auc(y); dist.all_gather_object(out, auc)` … `except ValueError: log()`.

Fix: put only what can fail into the `try`, and let every rank make the collective afterwards, with a marker
for failure.

Limits: what can fail is a guess by name; a call that never fails here counts too.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.code import Parting
from whichrank.rules.code_findings import Said, because, on_partings, shown

CODE = "LINT107"
CAUSE = "conditional-collective"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_partings(case, (CODE, CAUSE), lambda parting: parting.shape == "swallowed", _say)


def _say(parting: Parting) -> Said:
    message = (
        f"If {because(parting.reasons)}, the handler goes on without {shown(parting.concerned)}, "
        "in which the other ranks wait."
    )
    fix = (
        "Keep only the part that can fail inside the try, and call the collective after it on every rank.",
        "Or tell all ranks about the failure first: all-reduce a flag, then raise or skip together.",
    )
    return Said(message, fix)
