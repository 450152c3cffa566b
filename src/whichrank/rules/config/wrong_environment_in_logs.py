"""A setting makes the library fail, by its own words.

## What it finds
Failures that the libraries lay to a variable or a configuration file: values that are refused, algorithms that
exclude everything, topology files of another machine, addresses that are malformed, ranks with different settings.

## Why it happens
Variables are copied from other clusters, left over from an experiment, or set on some ranks only.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`NCCL WARN Error : no algorithm/protocol available for function Broadcast`

## Fix
Unset the variable that the message names, and those that were set for debugging; give all ranks the same environment.
whichrank env lint checks a launch file before the job starts.

## Limits
Settings that are merely ignored leave no message: env lint finds them.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "CONF201"
CAUSE = "wrong-environment"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        (
            "Unset the variable that the message names, and those that were set for debugging; give all ranks the same "
            "environment."
        ),
        "whichrank env lint checks a launch file before the job starts.",
    ),
    category="config",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "A setting makes the library fail: {what}.")
