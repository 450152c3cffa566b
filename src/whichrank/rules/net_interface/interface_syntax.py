"""An interface variable is written in a syntax that its reader does not understand.

## What it finds
Gloo that looks for an interface called `^docker0`, `=eth0` or `10.1.2.4`: it knows plain names only, the signs are
NCCL's, and an address is not a name.

## Why it happens
The value of `NCCL_SOCKET_IFNAME` was copied to `GLOO_SOCKET_IFNAME` (or `TP_SOCKET_IFNAME`).

## How it decides
The name in Gloo's own error begins with one of NCCL's signs, or is an address.

## Example
`ifa != nullptr. Unable to find address for: ^docker0,lo`

## Fix
Give Gloo plain names: `GLOO_SOCKET_IFNAME=eth0`.

## Limits
Values that no error mentions are checked by `whichrank env lint`.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.records.events.communication import GlooInitError
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import statements
from whichrank.timeline.network import interface_names

CODE = "NETI103"
CAUSE = "interface-syntax"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=("Set GLOO_SOCKET_IFNAME to a plain interface name: the signs ^ and = are understood by NCCL alone.",),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = statements.of_kind(case, GlooInitError)
    told += statements.beside(told, statements.said(case, "Unable to find address for"))
    signs = [s for s in told if interface_names.is_foreign(interface_names.wanted(s))]
    if not signs:
        return []
    name = interface_names.wanted(signs[0])
    ranks = statements.unless_all(case, statements.ranks_of(signs))
    why = (
        f"it does not know the prefix '{name[:1]}'"
        if name.startswith(interface_names.SIGNS)
        else "an address is not a name"
    )
    message = f"Gloo looks for an interface that is called '{name}': {why}."
    return [building.found(case, _CLAIM, signs, message, Grade.PROVES, ranks)]
