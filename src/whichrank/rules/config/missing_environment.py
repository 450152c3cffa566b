"""A variable that torch needs is missing, or has a value that it refuses.

## What it finds
`environment variable RANK expected, but not set`, and `Invalid value for environment variable`.

## Why it happens
The script is started without its launcher, or the launcher's variables did not reach the process (a container,
sudo, ssh); a boolean is written `on`, which torch does not take.

## How it decides
torch's own error names the variable.

## Example
`Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set`

## Fix
Start with `torchrun`, or export the variable where the ranks start.

## Limits
Variables that are set but wrong are checked by `whichrank env lint`.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.records.events.startup import InitError
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import statements

CODE = "CONF102"
CAUSE = "wrong-environment"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    signs = statements.of_kind(case, InitError, where=lambda e: e.what in ("env_missing", "bad_env"))
    event = signs[0].event if signs else None
    if not isinstance(event, InitError):
        return []
    name, missing = event.name or "a variable", event.what == "env_missing"
    fix = (
        (f"Start the script with torchrun, or export {name} where the ranks start.",)
        if missing
        else (f"Give {name} a value that torch takes: 1 or 0 for a boolean.",)
    )
    ranks = statements.unless_all(case, statements.ranks_of(signs))
    message = f"{name} is not set, and torch needs it." if missing else f"torch refuses the value of {name}."
    return [building.found(case, Claim(CODE, CAUSE, fix=fix, category="config"), signs, message, Grade.PROVES, ranks)]
