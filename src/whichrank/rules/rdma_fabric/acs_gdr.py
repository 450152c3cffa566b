"""The adapter may not reach the memory of the GPU.

## What it finds
Transfers over InfiniBand or RoCE that fail with a protection error (status 4 of the adapter on its own memory, 8, 10
or 11 beside it).

## Why it happens
With GPUDirect RDMA the adapter talks to the GPU over PCIe. Access control (ACS) on the bridges, an IOMMU, or a
virtual machine without address translation services send or refuse these accesses.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`NET/IB : Got completion from peer 10.0.0.12<40054> with error 4, opcode 1, len 0, vendor err 81`

## Fix
Turn ACS off on the bridges between GPU and adapter; on bare metal boot with iommu=pt; in virtual machines enable ATS
on the hypervisor. NCCL_NET_GDR_LEVEL=LOC shows whether GPUDirect is at fault (and is a slow way around).

## Limits
Memory that is freed while a transfer runs gives the same status.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "RDMA201"
CAUSE = "acs-gdr"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        (
            "Turn ACS off on the bridges between GPU and adapter; on bare metal boot with iommu=pt; in virtual "
            "machines enable ATS on the hypervisor."
        ),
        "NCCL_NET_GDR_LEVEL=LOC shows whether GPUDirect is at fault (and is a slow way around).",
    ),
    blames="host",
    next=(
        NextStep(
            "lspci -vvv | grep ACSCtl",
            "SrcValid+ on a bridge above GPU or adapter means that ACS is on",
            ("acs-gdr",),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(
        case, _CLAIM, "The adapter of {who} may not reach the memory that it should send from: {what}."
    )
