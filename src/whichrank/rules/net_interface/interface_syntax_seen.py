"""An interface variable is written in a syntax that its reader does not understand.

## What it finds
Gloo that looks for an interface called `^docker0` or `=eth0`: it knows plain names only, the signs are NCCL's.

## Why it happens
The value of `NCCL_SOCKET_IFNAME` was copied to `GLOO_SOCKET_IFNAME` (or `TP_SOCKET_IFNAME`).

## How it decides
The name in Gloo's own error begins with one of NCCL's signs.

## Example
`ifa != nullptr. Unable to find address for: ^docker0,lo`

## Fix
Give Gloo plain names: `GLOO_SOCKET_IFNAME=eth0`.

## Limits
Values that no error mentions are checked by `whichrank env lint`.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import crashes
from whichrank.rules.crashes import Claim
from whichrank.timeline.case import Case

CODE = "NETI103"
CAUSE = "interface-syntax"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=("Set GLOO_SOCKET_IFNAME to a plain interface name: the signs ^ and = are understood by NCCL alone.",),
)
_FOREIGN = ("^", "=", "!")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not crashes.heard(case):
        return crashes.SILENT
    told = crashes.signs_of(case, "gloo_init_error")
    signs = [s for s in told if s.event and s.event.text("interface").startswith(_FOREIGN)]
    if not signs:
        return []
    name = signs[0].event.text("interface") if signs[0].event else ""
    ranks = crashes.unless_all(case, crashes.ranks_of(signs))
    message = f"Gloo looks for an interface that is called '{name}': it does not know the sign '{name[:1]}'."
    return [crashes.found(case, _CLAIM, signs, message, 0.93, ranks)]
