"""Compiling: a rank does not reach the collective that the others wait in.

## What it finds
A rank compiles or recompiles kernels or graphs while the others wait.

## Why it happens
Different shapes on one rank cause recompilation, a cold compile cache on one host, an extension being built
behind a lock.

## How it decides
The rank does not come, and its stack is inside torch.compile (dynamo, inductor), Triton, or the extension
builder.
The only stack of a job, without any other sign, is half believed; without a rank it names nobody.

## Example
Rank 5 is in `torch/_inductor/codecache.py`, the others wait in `all_reduce #3`.

## Fix
Warm the compile cache before the first collective (compile on all ranks, then a barrier with a long timeout).
Mark dynamic dimensions or pad, so that one rank does not recompile alone; check TORCHINDUCTOR_CACHE_DIR on that
host.

## Limits
One stack is one moment: a rank that is merely slow looks the same as one that is stuck. Take a second one to
tell.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.stuck_ranks import judge_held
from whichrank.timeline.case import Case

CODE = "SLOW106"
CAUSE = "rank-stuck-in-compile"
FIX = (
    "Warm the compile cache before the first collective (compile on all ranks, then a barrier with a long timeout).",
    (
        "Mark dynamic dimensions or pad, so that one rank does not recompile alone; check "
        "TORCHINDUCTOR_CACHE_DIR on that host."
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return judge_held(case, "compile", CODE, CAUSE, "compiling", FIX)
