"""RDMA adapters are named for NCCL, or listed on the host, and NCCL finds none.

## What it finds
Jobs whose NCCL says that it finds no RDMA device, although `NCCL_IB_HCA` names adapters, `NCCL_IB_DISABLE=0` asks for
them, or a list of the host's devices shows some.

## Why it happens
The container or the virtual machine has no /dev/infiniband, the ports are down, RDMA is not enabled for the machine, or
the adapters have other names.

## How it decides
By `NET/IB : No device found` beside what asks for adapters. Without the latter it is what every host prints that has
none. Hosts that find no device while others of the job do are told by `RDMA213`.

## Example
    NCCL INFO NCCL_IB_HCA set to mlx5_0:1,mlx5_1:1
    NCCL INFO NET/IB : No device found.

## Fix
`ibv_devinfo` where the job runs (in the container) must list every adapter as PORT_ACTIVE: pass /dev/infiniband in,
load the drivers, or correct `NCCL_IB_HCA`.

## Limits
A launch script for all machines may name adapters that this one need not have.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements

CODE = "RDMA214"
CAUSE = "ib-device-not-exposed"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="slow",
    severity="warning",
    blames="host",
    fix=fix(CAUSE),
    alternatives=(("ib-missing-userspace", "the libraries for the adapter may be missing"),),
    next=(NextStep("ibv_devinfo; ls /dev/infiniband", "shows the adapters that the job can use", (CAUSE,), "none"),),
)
_WANTED = ("nccl-adapters-named", "rdma-device-listed")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    missing = known_messages.seen(case, "nccl-ib-no-device")
    wanted = known_messages.seen(case, *_WANTED)
    if not missing or not wanted or known_messages.of_cause(case, "ib-missing-userspace", ("root",)):
        return []
    if any(process.ib_devices for process in case.nccl) or known_messages.seen(case, "nccl-ibverbs-missing"):
        return []
    message = "NCCL finds no RDMA adapter, although the job or the host names some."
    signs = [s.sign for s in (*missing[:2], *wanted[:2])]
    return [building.found(case, _CLAIM, signs, message, Grade.SUPPORTS)]
