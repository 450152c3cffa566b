"""ACS or the IOMMU breaks copies between GPUs.

## What it finds
Faults that the IOMMU logs for a GPU or adapter, and jobs of one host that stall at the first transfer, or work
without peer-to-peer.

## Why it happens
PCIe access control (ACS) and the IOMMU send traffic between two devices through the root complex, which many boards
do wrongly or not at all.

## How it decides
A fault of the IOMMU says it outright. Otherwise clues are added up: the job stalls at its first transfer within a
host, it works with NCCL_P2P_DISABLE=1, the IOMMU or ACS is said to be on, it works once after each boot. Models
without peer-to-peer, and an IOMMU that is said to be off, speak against it.

## Example
`AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:41:00.0 …]`

## Fix
Turn ACS off on the bridges above the GPUs, and boot with iommu=pt (or switch the IOMMU off in the BIOS on bare
metal). Until then NCCL_P2P_DISABLE=1.

## Limits
A driver that offers peer-to-peer on a model that has none looks the same.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, peer_copies, statements

CODE = "PCIE201"
CAUSE = "p2p-acs-iommu"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    blames="host",
    fix=(
        "Turn ACS off on the bridges above the GPUs and boot with iommu=pt (or without IOMMU, on bare metal).",
        "Until then NCCL_P2P_DISABLE=1 goes around it.",
    ),
    alternatives=(
        ("p2p-driver", "the driver may offer peer-to-peer on a model that has none"),
        ("collective-stalled", "the evidence does not say why nothing moves"),
    ),
    next=(
        NextStep(
            "lspci -vvv | grep ACSCtl; cat /proc/cmdline", "shows whether ACS or the IOMMU is on", (CAUSE,), "none"
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = [s for s in known_messages.of_cause(case, CAUSE) if s.signature.role == "root"]
    if told:
        return [
            building.tell_of(
                case,
                _CLAIM,
                "The IOMMU of {who} refused an access between devices: {what}.",
                told,
                known_messages.grade(told),
            )
        ]
    found = peer_copies.clues(case)
    if not found.any:
        return []
    speaking = (found.helped, found.iommu_on, found.after_boot, found.stalled, found.tested and found.hangs)
    left = sum(map(bool, speaking)) - 2 * (bool(found.model) + bool(found.iommu_off))
    if left < 0:
        return []
    message = "Copies between the GPUs of this host do not work; ACS or the IOMMU is the usual reason."
    return [
        building.found(case, _CLAIM, peer_copies.signs(found), message, Grade.SUPPORTS if left > 1 else Grade.HINTS)
    ]
