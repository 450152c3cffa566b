"""Hosts print messages of different NCCL versions.

## What it finds
Hosts whose lines exist only in versions of NCCL that exclude each other.

## Why it happens
Images or LD_LIBRARY_PATH differ between hosts. Versions before 2.23 do not compare themselves; they fail with an
internal error or hang.

## How it decides
Some lines changed their shape from one version to the next (the bootstrap line with 2.24, the line about plug-ins
with 2.22). Each host gets the range of versions that fits all its lines, and the version it prints; hosts whose
ranges do not meet have different libraries.

## Example
`NET/Plugin : … No plugin found` on one host, `NET/Plugin: Could not find: libnccl-net.so` on the other

## Fix
Install the same NCCL on all hosts, and see that LD_LIBRARY_PATH leads to it everywhere.

## Limits
Two versions within the same range of shapes are not told apart.
"""

from __future__ import annotations

import re

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.statements import Statement

CODE = "SOFT206"
CAUSE = "nccl-version-mismatch"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Install the same NCCL on all hosts and see that LD_LIBRARY_PATH leads to it everywhere.",
        "Print it on each: python -c 'import torch; print(torch.cuda.nccl.version())', or NCCL_DEBUG=VERSION.",
    ),
    next=(NextStep("NCCL_DEBUG=VERSION on each host", "prints the version that is loaded", (CAUSE,), "none"),),
)
_SHAPES = {
    "nccl-bootstrap-shape-old": ((2, 4), (2, 23)),
    "nccl-bootstrap-shape-new": ((2, 24), (9, 0)),
    "nccl-plugin-shape-old": ((2, 4), (2, 21)),
    "nccl-plugin-shape-new": ((2, 22), (9, 0)),
}
_NUMBER = re.compile(r"(\d{1,3})\.(\d{1,3})")
Range = tuple[tuple[int, int], tuple[int, int]]


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    ranges, proof = _ranges(case)
    hosts = sorted(ranges)
    for number, one in enumerate(hosts):
        for other in hosts[number + 1 :]:
            if ranges[one][1] < ranges[other][0] or ranges[other][1] < ranges[one][0]:
                signs = [*proof[one], *proof[other]]
                message = f"{one} and {other} print lines that no version of NCCL has both: their libraries differ."
                return [building.found(case, _CLAIM, signs, message, Grade.SUPPORTS)]
    return []


def _ranges(case: Case) -> tuple[dict[str, Range], dict[str, list[Statement]]]:
    """By host, the versions that fit all its lines."""
    ranges: dict[str, Range] = {}
    proof: dict[str, list[Statement]] = {}
    for s in known_messages.seen(case, *_SHAPES):
        if s.sign.host:
            _narrow(ranges, s.sign.host, _SHAPES[s.id])
            proof.setdefault(s.sign.host, []).append(s.sign)
    for process in case.nccl:
        found = _NUMBER.match(process.version or "")
        if process.host in ranges and found:
            _narrow(ranges, process.host, ((int(found[1]), int(found[2])),) * 2)
    # A host whose own lines exclude each other holds several processes or runs: nothing follows from it.
    return {host: span for host, span in ranges.items() if span[0] <= span[1]}, proof


def _narrow(ranges: dict[str, Range], host: str, span: Range) -> None:
    low, high = ranges.get(host, span)
    ranges[host] = (max(low, span[0]), min(high, span[1]))
