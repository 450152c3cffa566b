"""An RDMA device is there but this process may not use it.

## What it finds
Adapters that are listed and can not be opened or queried, hosts with fewer devices than others, transports whose
device is missing.

## Why it happens
The container has no /dev/infiniband, lacks a capability or a limit, or one adapter of the host is not passed through.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`NET/IB : Unable to open device mlx5_0`

## Fix
Give the container its devices: --device=/dev/infiniband (or the RDMA device plug-in), --cap-add=IPC_LOCK, --ulimit
memlock=-1. Check inside the container: ibv_devinfo must list every adapter as PORT_ACTIVE.

## Limits
"No device found" alone is what every host without RDMA prints and says nothing.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "RDMA206"
CAUSE = "ib-device-not-exposed"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        (
            "Give the container its devices: --device=/dev/infiniband (or the RDMA device plug-in), "
            "--cap-add=IPC_LOCK, --ulimit memlock=-1."
        ),
        "Check inside the container: ibv_devinfo must list every adapter as PORT_ACTIVE.",
    ),
    blames="host",
    next=(
        NextStep(
            "ibv_devinfo",
            "inside the container it must list every adapter",
            (
                "ib-device-not-exposed",
                "ib-missing-userspace",
            ),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "{who} can not use its RDMA devices: {what}.")
