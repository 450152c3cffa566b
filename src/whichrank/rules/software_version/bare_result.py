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

from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.rules import building
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements

CODE = "SOFT207"
CAUSE = "unknown"

_BEHIND: dict[str, tuple[str, ...]] = {
    "torch-invalid-usage": ("duplicate-gpu", "invalid-collective-call", "nccl-version-mismatch"),
    "torch-system-error": ("shm-too-small", "wrong-interface", "firewall"),
    "torch-internal-error": ("nccl-version-mismatch", "wrong-interface", "wrong-environment"),
    "torch-cuda-error": ("gpu-out-of-memory", "driver-mismatch", "cuda-illegal-access"),
    "torch-invalid-argument": ("invalid-collective-call", "nccl-library-conflict"),
    "nccl-test-failure": ("shm-too-small", "wrong-interface", "driver-mismatch"),
}
_MOSTLY_ONE = ("torch-invalid-usage", "torch-invalid-argument")
"""One cause is behind nearly half of these: it is told as the likeliest."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = [s for s in known_messages.seen(case, *_BEHIND) if not any(process.warnings for process in case.nccl)]
    if not told or case.index.roots:
        return []
    lead = told[0]
    given = _given(case)
    causes = (*given, *_BEHIND[lead.id])
    guess = bool(given) or lead.id in _MOSTLY_ONE
    rerun = NextStep("NCCL_DEBUG=WARN torchrun …", "the first warning of any rank tells the reason", (), "ends")
    return [
        Finding(
            code=CODE,
            cause=causes[0] if guess else CAUSE,
            category="crash" if guess else "unknown",
            severity="warning" if guess else "info",
            grade=Grade.HINTS,
            subject=Subject(),
            message=f"NCCL failed and its reason was not printed: {building.short(lead.sign.text)}.",
            evidence=building.refs(s.sign for s in told),
            fix=("Run once more with NCCL_DEBUG=WARN and read the first warning of any rank.",),
            alternatives=tuple(Alternative(cause, "this is often behind such an error") for cause in causes[guess:]),
            next=(rerun,),
        )
    ]


def _given(case: Case) -> tuple[str, ...]:
    """What the environment gives that easily does not fit the machine."""
    if known_messages.seen(case, "nccl-graph-file-set"):
        return ("wrong-environment",)
    return ("wrong-interface",) if known_messages.seen(case, "nccl-virtual-interfaces") else ()
