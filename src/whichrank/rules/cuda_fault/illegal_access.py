"""An illegal or misaligned memory access in a kernel; the communication error is a consequence.

## What it finds
`CUDA error: an illegal memory access was encountered`, `misaligned address` or `unspecified launch failure` on a
rank (in torch 1.x `cuda runtime error (700) : …`); on ROCm `Memory access fault by GPU node-…`.

## Why it happens
A faulty kernel (custom, compiled or in a library), an index that no check covers, memory freed while a kernel still
uses it, more rarely the hardware.

## How it decides
The CUDA error names the rank whose context broke. It often surfaces in the NCCL watchdog or in a NCCL call because
these synchronise next: that does not make it a communication fault. Ranks that report it within ten seconds of the
first are named; those that only time out are victims.

## Example
Rank 3's watchdog ends with `CUDA error: an illegal memory access was encountered`; ranks 0-2 time out in an
all-reduce.

## Limits
If the same GPU fails with different programs, suspect the hardware.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.events.processes import CudaError
from whichrank.records.events.watchdog import WatchdogTerminated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import deaths, statements

CODE = "CUDA103"
CAUSE = "cuda-illegal-access"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
    alternatives=(("xid-gpu-fault", "a fault that stays with one GPU is a hardware fault"),),
    next=(
        NextStep(
            "dmesg -T | grep -i xid", "Xid 13 or 31 names the process; others mean hardware", ("xid-gpu-fault",), "none"
        ),
    ),
)
_KINDS = ("illegal_access", "misaligned_address", "launch_failure")
_WORDS = ("illegal memory access", "misaligned address", "unspecified launch failure")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = statements.of_kind(case, CudaError, where=lambda e: e.what in _KINDS)
    told += statements.of_kind(case, WatchdogTerminated, where=lambda e: any(words in e.words for words in _WORDS))
    told += statements.said_by_nccl(case, *_WORDS)
    signs = statements.first_to_fail([*told, *statements.beside(told, statements.known(case, CAUSE))])
    if not signs:
        return []
    ranks = statements.ranks_of(signs) or deaths.only_one_failed(case)
    what = next((words for words in _WORDS for s in signs if words in s.text), "illegal memory access")
    whose = building.whose(case, ranks, signs)
    article = "an" if what[0] in "aiu" else "a"
    message = f"A kernel of {whose} failed with {article} {what}{building.others(case, ranks)}."
    plain = what != "unspecified launch failure"
    return [building.found(case, _CLAIM, signs, message, Grade.PROVES if plain else Grade.SUPPORTS, ranks)]
