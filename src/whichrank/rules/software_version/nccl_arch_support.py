"""The build has no code for this GPU.

## What it finds
CUDA errors about missing kernels or functions, torch that names the architecture, and an NCCL that is older than the
GPUs.

## Why it happens
A framework or extension was built with a CUDA that does not know the architecture.

## How it decides
The words of CUDA or torch. Old versions of NCCL print the compute capability of the GPUs: where it is newer than the
CUDA of the library (8 needs CUDA 11, 9 needs 11.8, 10 and 12 need 12.8) there is no code for them.

## Example
`NCCL version 2.4.8+cuda10.2` and `Min Comp Cap 8`

## Limits
Code that is compiled at run time from PTX may run all the same.
"""

from __future__ import annotations

import re

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.known_messages import Seen

CODE = "SOFT201"
CAUSE = "nccl-arch-support"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
    next=(
        NextStep(
            "python -c 'import torch; print(torch.cuda.get_arch_list())'",
            "lists the architectures of the build",
            (CAUSE,),
            "none",
        ),
    ),
)
_NEEDS = {8: (11, 0), 9: (11, 8), 10: (12, 8), 12: (12, 8)}
"""The first CUDA that compiles for a compute capability (CUDA release notes)."""
_BUILT_WITH = re.compile(r"\+cuda(\d{1,3})\.(\d{1,3})")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = known_messages.of_cause(case, CAUSE)
    if any(s.signature.role == "root" for s in told) and not known_messages.has_run(case):
        return [
            building.tell_of(
                case, _CLAIM, "The build has no code for this GPU: {what}.", told, known_messages.grade(told)
            )
        ]
    for s in known_messages.seen(case, "nccl-min-comp-cap"):
        built = _too_old(case, s)
        if built:
            gpus = f"GPUs of compute capability {s.group('capability')}"
            message = f"NCCL was built with CUDA {built} and has no code for {gpus}."
            return [building.found(case, _CLAIM, [s.sign], message, Grade.SUPPORTS)]
    return []


def _too_old(case: Case, s: Seen) -> str:
    needed = _NEEDS.get(int(s.group("capability")))
    versions = {v for process in case.nccl if process.version for v in (process.version,)} | set(case.nccl_versions)
    for version in sorted(versions):
        found = _BUILT_WITH.search(version)
        if needed and found and (int(found[1]), int(found[2])) < needed:
            return f"{found[1]}.{found[2]}"
    return ""
