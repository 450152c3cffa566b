"""Two NCCL libraries, or the wrong one, are loaded.

## What it finds
Missing symbols of NCCL, NCCL libraries that can not be loaded, and packages of NCCL for two CUDA versions in one
environment.

## Why it happens
pip installs nvidia-nccl-cu12 and -cu13 into the same folder, one over the other; LD_LIBRARY_PATH or LD_PRELOAD lead
to a system NCCL.

## How it decides
The words of the dynamic linker; two packages in a list of packages make it surer, and count alone where the program
failed while it was imported.

## Example
`undefined symbol: ncclCommRegister`, `nvidia-nccl-cu12==2.27.3`, `nvidia-nccl-cu13==2.28.9`

## Fix
Keep one package, of torch's own CUDA: pip uninstall the other, then reinstall the right one. Clear LD_LIBRARY_PATH
and LD_PRELOAD of other libnccl.

## Limits
An extension that was built for another torch fails with symbols of torch, not of NCCL.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements

CODE = "SOFT202"
CAUSE = "nccl-library-conflict"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Keep one package of NCCL, of torch's own CUDA: uninstall the others and reinstall the right one.",
        "Clear LD_LIBRARY_PATH and LD_PRELOAD of other libnccl.",
    ),
    alternatives=(("nccl-version-mismatch", "the hosts may have different libraries"),),
    next=(
        NextStep(
            "pip list | grep nccl; ldd libtorch_cuda.so | grep nccl",
            "shows which libraries are there and which is loaded",
            (CAUSE,),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = [s for s in known_messages.of_cause(case, CAUSE) if s.signature.role == "root"]
    packages = {s.group("cuda"): s for s in known_messages.seen(case, "pip-nccl")}
    if not told:
        return []
    two = [s.sign for s in packages.values()] if len(packages) > 1 else []
    names = " and ".join(f"nvidia-nccl-cu{cuda}" for cuda in sorted(packages)) if two else ""
    message = "The NCCL library that was loaded is not the one that the program was built for"
    message += f": {names} are both installed." if two else f": {building.short(told[0].sign.text)}."
    return [
        building.found(
            case, _CLAIM, [*(s.sign for s in told), *two], message, Grade.PROVES if two else known_messages.grade(told)
        )
    ]
