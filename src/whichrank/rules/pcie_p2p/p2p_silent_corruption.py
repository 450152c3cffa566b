"""Copies between GPUs deliver zeros or old data.

## What it finds
Tests that find other data than was sent, and printed tensors that are zero on one GPU where they had values on
another.

## Why it happens
The IOMMU or ACS drops or redirects writes between devices, and nothing reports an error.

## How it decides
The words of the tests (simpleP2P, nccl-tests, NCCL diagnostics). In an interactive session: a tensor of zeros on one
GPU, printed after the same number of values that are not all zero on another GPU, in the same text.

## Example
`tensor([1., 2.], device='cuda:0')`, then `tensor([0., 0.], device='cuda:1')`

## Fix
Turn the IOMMU and ACS off (or iommu=pt), test again, and use NCCL_P2P_DISABLE=1 until then. Results computed before
are not to be trusted.

## Limits
A test that counts wrong values does not say which path made them wrong.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.known_messages import Seen

CODE = "PCIE203"
CAUSE = "p2p-silent-corruption"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="corruption",
    blames="host",
    fix=(
        "Turn the IOMMU and ACS off (or boot with iommu=pt), then test again.",
        "NCCL_P2P_DISABLE=1 until then; what was computed before is not to be trusted.",
    ),
    next=(
        NextStep(
            "simpleP2P (CUDA samples)", "compares what arrives with what was sent, pair by pair", (CAUSE,), "load"
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
                "Data that went between GPUs came out wrong: {what}.",
                told,
                known_messages.grade(told),
            )
        ]
    printed = _lost(known_messages.seen(case, "told-zeros"))
    if not printed:
        return []
    message = f"A tensor that has values on one GPU arrived as zeros on GPU {printed[-1].group('device')}."
    return [building.found(case, _CLAIM, [s.sign for s in printed[::-1]], message, Grade.SUPPORTS)]


def _lost(printed: list[Seen]) -> list[Seen]:
    """A tensor with values, and the zeros that another GPU shows for it."""
    for at, zeros in enumerate(printed):
        if any(_values(zeros)):
            continue
        for before in printed[:at]:
            same = before.sign.ref.source == zeros.sign.ref.source and len(_values(before)) == len(_values(zeros))
            if same and any(_values(before)) and before.group("device") != zeros.group("device"):
                return [before, zeros]
    return []


def _values(s: Seen) -> list[float]:
    found = []
    for word in s.group("values").split(","):
        try:
            found.append(float(word))
        except ValueError:
            found.append(1.0)  # cut or odd: not a zero
    return found
