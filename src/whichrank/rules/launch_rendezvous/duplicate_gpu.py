"""Two ranks use the same GPU.

## What it finds
NCCL's refusal of a communicator in which two ranks have the same device.

## Why it happens
No `torch.cuda.set_device(local_rank)` before the first collective, more processes than visible GPUs, or
`CUDA_VISIBLE_DEVICES` set to the same device for several ranks.

## How it decides
NCCL's `Duplicate GPU detected : rank a and rank b …` names the ranks, in numbers of the communicator: they are
global where it spans the job. NCCL 2.30 and later names no ranks; then the ranks whose device is the same in NCCL's
log are named.

## Example
`Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60`

## Limits
In a smaller communicator without any other evidence the ranks can't be translated, and nobody is named.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import statements
from whichrank.timeline.job_state.statements import Statement

CODE = "LNCH106"
CAUSE = "duplicate-gpu"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
    blames="gpu",
)
_BUSY = replace(_CLAIM, alternatives=(("gpu-fell-off-bus", "a GPU that is gone is not available either"),))
_PAIR = re.compile(r"Duplicate GPU detected : rank (\d{1,7}) and rank (\d{1,7}) both on CUDA device (\w{1,20})")
_WORDS = ("Duplicate GPU detected", "Multiple Ranks are using the same GPU")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    signs = statements.first_to_fail(statements.said(case, *_WORDS))
    if not signs:
        return _busy(case)
    pairs = {(int(m[1]), int(m[2])) for s in signs for m in _PAIR.finditer(s.text)}
    named = tuple(sorted({rank for pair in pairs for rank in pair}))
    ranks = (named if _spans_the_job(case, named) else ()) if named else _on_one_device(case)
    shown = "; ".join(f"ranks {a} and {b}" for a, b in sorted({(min(p), max(p)) for p in pairs})[:4])
    whose = shown or (building.whose(case, ranks) if ranks else "several ranks")
    unsure = "" if ranks or not named else " (numbers within one communicator)"
    message = f"The same GPU is used by {whose}{unsure}; NCCL refuses that."
    finding = building.found(case, _CLAIM, signs, message, Grade.PROVES, ranks)
    # Who prints it is one of the two, and both are on one host.
    hosts = {sign.host for sign in signs if sign.host and sign.host != "localhost"}
    return [building.about(finding, replace(finding.subject, hosts=tuple(hosts))) if len(hosts) == 1 else finding]


def _busy(case: Case) -> list[Finding]:
    """CUDA only says that somebody else is on the GPU."""
    signs = statements.first_to_fail(statements.known(case, CAUSE))
    if not signs:
        return []
    ranks = statements.ranks_of(signs)
    message = f"{building.who(case, ranks, signs)} found its GPU taken or not usable: {building.short(signs[0].text)}."
    return [building.found(case, _BUSY, signs, message, statements.surest(signs), ranks)]


def _spans_the_job(case: Case, named: tuple[int, ...]) -> bool:
    """Whether the communicator that was refused is over all ranks: as the first one mostly is, if nothing is known."""
    sizes = {init.nranks for process in case.nccl for init in process.inits}
    if sizes:
        return sizes == {case.world}
    return case.world not in range(1, max(named) + 1) and _reported_by(case) <= set(named)


def _reported_by(case: Case) -> set[int]:
    """Global ranks that report the refusal; both ends of a pair do."""
    told: list[Statement] = statements.said(case, *_WORDS)
    return {sign.rank for sign in told if sign.rank is not None}


def _on_one_device(case: Case) -> tuple[int, ...]:
    by_device: dict[tuple[str, str], set[int]] = {}
    for rank, person in case.people.by_rank.items():
        if person.host is not None and person.bus_id is not None:
            by_device.setdefault((person.host, person.bus_id), set()).add(rank)
    return tuple(sorted({rank for ranks in by_device.values() if len(ranks) > 1 for rank in ranks}))
