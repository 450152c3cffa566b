"""The driver offers peer-to-peer that this GPU does not have.

## What it finds
Peer access that the driver refuses after offering it, and consumer GPUs whose first transfer over peer-to-peer never
ends.

## Why it happens
Consumer cards have no peer-to-peer over PCIe. Some drivers offered it all the same (on the RTX 4090 up to 525.105):
the copy is accepted and nothing arrives.

## How it decides
The words of NCCL about refused access; or a model without peer-to-peer together with a transfer that stalls or with a
report that NCCL_P2P_DISABLE=1 helps. An IOMMU that is said to be on speaks for the other cause.

## Example
`4x RTX 4090`, `Channel 03/0 : 3[c1000] -> 0[1000] via P2P/IPC`, then nothing

## Fix
Use a driver that does not offer peer-to-peer on this model (525.105.17 and later for the RTX 4090), or
NCCL_P2P_DISABLE=1.

## Limits
The model is known only where somebody names it.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, peer_copies, statements

CODE = "PCIE202"
CAUSE = "p2p-driver"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    blames="host",
    fix=(
        "Update the driver to one that does not offer peer-to-peer on this model.",
        "NCCL_P2P_DISABLE=1 goes around it.",
    ),
    alternatives=(("p2p-acs-iommu", "ACS or the IOMMU breaks peer-to-peer in the same way"),),
    next=(NextStep("nvidia-smi topo -p2p r", "shows what the driver offers", (CAUSE,), "none"),),
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
                "The driver of {who} refuses the peer access that it offers: {what}.",
                told,
                known_messages.grade(told),
            )
        ]
    found = peer_copies.clues(case)
    if not found.model or not found.any or not (found.helped or (found.stalled and found.direct)):
        return []
    likely = (found.helped or found.iommu_off) and not found.iommu_on
    message = (
        "Copies between GPUs of a model without peer-to-peer never end: the driver offers what the cards do not have."
    )
    return [building.found(case, _CLAIM, peer_copies.signs(found), message, Grade.SUPPORTS if likely else Grade.HINTS)]
