"""The cloud's fabric provider or its plug-in is missing.

## What it finds
The plug-in of a cloud (EFA, FasTrak, TCPX) that finds no provider or only plain sockets, can not be loaded, or does not
fit NCCL.

## Why it happens
libfabric or the driver is missing in the image, is shadowed by another one in LD_LIBRARY_PATH, is of another version,
or the pod was not given the devices. NCCL falls back to sockets and the job becomes slow.

## How it decides
The text of the message, in the form of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`NCCL WARN NET/OFI Could not find any optimal provider`

## Limits
A plug-in that is not installed at all prints only "Could not find: libnccl-net.so", as on any other host. A cluster
may use the plug-in over sockets on purpose; a run that makes steps is therefore not told of.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import statements
from whichrank.timeline.job_state.outcome import observed
from whichrank.timeline.job_state.statements import Statement

CODE = "RDMA209"
CAUSE = "efa-provider-missing"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
    category="slow",
    blames="host",
    next=(NextStep("fi_info -p efa", "lists the provider if it works", ("efa-provider-missing",), "none"),),
)

_EC2 = re.compile(r"ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}(?:\.|$)")
"""What EC2 calls its hosts."""
_ON_EC2 = replace(
    _CLAIM,
    alternatives=(
        ("slow-network", "instances without EFA have only sockets"),
        ("ib-device-not-exposed", "the devices may be missing in the container"),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    claim = replace(_CLAIM, category="crash", severity="error") if observed(case) == "crash" else _CLAIM
    found = building.judged(
        case, claim, "For {who} there is no provider of the cloud's fabric, so NCCL falls back to sockets: {what}."
    )
    return found or _sockets_on_ec2(case)


def _sockets_on_ec2(case: Case) -> list[Finding]:
    """A slow job over several hosts of EC2 whose NCCL has neither a plug-in nor a verbs device."""
    plain = [p for p in case.nccl if p.network == "Socket" and p.no_ib_device and _EC2.match(p.host or "")]
    if not plain or observed(case) != "slow":
        return []
    ref = Ref(plain[0].source, f"line {plain[0].first_line}", "NET/IB : No device found. Using network Socket")
    sign = Statement(ref.quote, replace(ref, host=plain[0].host), host=plain[0].host)
    message = (
        f"NCCL uses plain sockets on {plain[0].host}, a host of EC2: it found no plug-in for EFA (libnccl-net.so of "
        "aws-ofi-nccl)."
    )
    return [building.found(case, _ON_EC2, [sign], message, Grade.HINTS)]
