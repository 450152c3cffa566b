"""NCCL's result without its reason.

## What it finds
An error of NCCL that torch repeats (`ncclSystemError`, `ncclInvalidUsage`, `unhandled cuda error`) where nothing at
hand says why.

## Why it happens
NCCL prints its reason as a warning, which is shown only with `NCCL_DEBUG=WARN`.

## How it decides
By the class of the error: each has causes that are behind it more often than others. They are told as possibilities,
the most frequent one as the likeliest where it stands out, and nobody is named; where a warning of NCCL or another
known message is at hand, this rule is silent.

## Example
`ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.`

## Fix
Run once more with `NCCL_DEBUG=WARN` and read the first warning of any rank.

## Limits
The order of the possibilities comes from experience, not from this job.
"""

from __future__ import annotations

import math

from whichrank.model.findings import Alternative, Finding, NextStep, NotEvaluated, Subject
from whichrank.rules import building
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements

CODE = "SOFT207"
CAUSE = "unknown"

_BEHIND: dict[str, tuple[tuple[str, float], ...]] = {
    "torch-invalid-usage": (("duplicate-gpu", 0.45), ("invalid-collective-call", 0.15), ("nccl-version-mismatch", 0.1)),
    "torch-system-error": (("shm-too-small", 0.3), ("wrong-interface", 0.2), ("firewall", 0.15)),
    "torch-internal-error": (("nccl-version-mismatch", 0.2), ("wrong-interface", 0.15), ("wrong-environment", 0.15)),
    "torch-cuda-error": (("gpu-out-of-memory", 0.25), ("driver-mismatch", 0.2), ("cuda-illegal-access", 0.15)),
    "torch-invalid-argument": (("invalid-collective-call", 0.5), ("nccl-library-conflict", 0.1)),
    "nccl-test-failure": (("shm-too-small", 0.2), ("wrong-interface", 0.2), ("driver-mismatch", 0.1)),
}

_WORTH_SAYING = 0.4
"""From here on the most frequent cause is told as the likeliest one."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = [s for s in known_messages.seen(case, *_BEHIND) if not any(process.warnings for process in case.nccl)]
    if not told or case.index.roots:
        return []
    lead = told[0]
    likely, *rest = (*_given(case), *_BEHIND[lead.id])
    guess = likely[1] >= _WORTH_SAYING
    others = rest if guess else [likely, *rest]
    left = 1.0 - (likely[1] if guess else 0.0)
    scale = min(1.0, left / sum(share for _, share in others))
    rerun = NextStep("NCCL_DEBUG=WARN torchrun …", "the first warning of any rank tells the reason", (), "ends")
    return [
        Finding(
            code=CODE,
            cause=likely[0] if guess else CAUSE,
            category="crash" if guess else "unknown",
            severity="warning" if guess else "info",
            confidence=likely[1] if guess else 0.0,
            subject=Subject(),
            message=f"NCCL failed and its reason was not printed: {building.short(lead.sign.text)}.",
            evidence=building.refs(s.sign for s in told),
            fix=("Run once more with NCCL_DEBUG=WARN and read the first warning of any rank.",),
            alternatives=tuple(
                Alternative(cause, math.floor(share * scale * 100) / 100, "this is often behind such an error")
                for cause, share in others
            ),
            next=(rerun,),
        )
    ]


def _given(case: Case) -> tuple[tuple[str, float], ...]:
    """What the environment gives that easily does not fit the machine."""
    if known_messages.seen(case, "nccl-graph-file-set"):
        return (("wrong-environment", 0.45),)
    return (("wrong-interface", 0.45),) if known_messages.seen(case, "nccl-virtual-interfaces") else ()
