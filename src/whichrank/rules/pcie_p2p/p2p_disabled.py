"""GPUs that could talk directly go through host memory.

## What it finds
CUDA that can not share memory between processes or switch peer access on.

## Why it happens
WSL, MIG, containers with separate process namespaces, a driver or a virtual machine without peer access.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`NCCL WARN cudaIpcGetMemHandle failed : invalid argument`

## Fix
Run the ranks of one host in one container, or with --pid=host --ipc=host. NCCL_P2P_DISABLE=1 goes around it at the
price of speed.

## Limits
On GPUs without peer access going through host memory is normal.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "PCIE204"
CAUSE = "p2p-disabled"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Run the ranks of one host in one container, or with --pid=host --ipc=host.",
        "NCCL_P2P_DISABLE=1 goes around it at the price of speed.",
    ),
    blames="host",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "GPUs of {who} can not reach each other directly: {what}.")
