"""The cloud's fabric provider or its plug-in is missing.

## What it finds
The plug-in of a cloud (EFA, FasTrak, TCPX) that finds no provider or only plain sockets, can not be loaded, or does not
fit NCCL.

## Why it happens
libfabric or the driver is missing in the image, is shadowed by another one in LD_LIBRARY_PATH, is of another version,
or the pod was not given the devices. NCCL falls back to sockets and the job becomes slow.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`NCCL WARN NET/OFI Could not find any optimal provider`

## Fix
fi_info -p efa inside the container must list the provider: install libfabric and plug-in of one release, and give the
pod its devices. See which libfabric is loaded: ldd libnccl-net.so; put its folder first in LD_LIBRARY_PATH.

## Limits
A plug-in that is not installed at all prints only "Could not find: libnccl-net.so", as on any other host. A cluster
may use the plug-in over sockets on purpose; a run that makes steps is therefore not told of.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "RDMA209"
CAUSE = "efa-provider-missing"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        (
            "fi_info -p efa inside the container must list the provider: install libfabric and plug-in of one release, "
            "and give the pod its devices."
        ),
        "See which libfabric is loaded: ldd libnccl-net.so; put its folder first in LD_LIBRARY_PATH.",
    ),
    category="slow",
    blames="host",
    next=(NextStep("fi_info -p efa", "lists the provider if it works", ("efa-provider-missing",), "none"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(
        case, _CLAIM, "For {who} there is no provider of the cloud's fabric, so NCCL falls back to sockets: {what}."
    )
