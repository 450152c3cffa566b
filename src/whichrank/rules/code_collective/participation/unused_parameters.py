"""DDP misses gradients of parameters that took no part in the forward pass.

## What it finds
DDP's `Expected to have finished reduction in the prior iteration`, and which ranks raised it.

## Why it happens
A layer that is only sometimes used, parameters frozen after DDP was made, an output that the loss does not use. If
all ranks skip the same ones, all raise the error; if only some do, those raise it and the others lose their peer.

## How it decides
The ranks that print the error skipped the parameters; where all do, nobody is named. Ranks that report a lost peer
are victims.

## Example
`Parameter indices which did not receive grad for rank 1: 2 3`

## Fix
`find_unused_parameters=True`, or better, let every parameter take part (a zero-weighted term), and freeze before
wrapping.

## Limits
Names of the parameters are printed with `TORCH_DISTRIBUTED_DEBUG=INFO` or DETAIL.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.records.events.processes import DdpError
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import statements
from whichrank.timeline.job_state.statements import Statement

CODE = "COLL120"
CAUSE = "unused-parameters"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Let every parameter take part in the loss on every rank: add unused branches with weight zero.",
        "Or pass find_unused_parameters=True.",
        "Freeze parameters before wrapping the model in DDP, not after.",
        "TORCH_DISTRIBUTED_DEBUG=DETAIL prints their names.",
    ),
)

_WORDS = ("Expected to have finished reduction in the prior iteration", "were not used in producing the loss")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = statements.of_kind(case, DdpError, where=lambda e: e.what.startswith("unused"))
    told += [s for s in statements.said(case, *_WORDS) if s.event]
    told += statements.beside(told, statements.known(case, CAUSE))
    if not told:
        return []
    ranks = statements.unless_all(case, statements.ranks_of(told))
    who, rest = building.who(case, ranks, told), building.others(case, ranks)
    message = f"{who} skipped parameters that DDP waits for{_names(told)}{rest}."
    return [building.found(case, _CLAIM, told, message, Grade.PROVES, ranks)]


def _names(told: list[Statement]) -> str:
    for sign in told:
        names = sign.event.names if isinstance(sign.event, DdpError) else ()
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            return f" ({', '.join(map(str, names[:3]))}{more})"
    return ""
