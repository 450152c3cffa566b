"""No network interface fits what the library looks for.

## What it finds
NCCL or Gloo that found no interface with an address for its connections.

## Why it happens
`NCCL_SOCKET_IFNAME` or `GLOO_SOCKET_IFNAME` names an interface that this host does not have (names differ between
hosts and containers), the interface is down or has no address, or the container has no network.

## How it decides
The libraries' own words. The ranks (and hosts) that print them are named, unless all do. Gloo says nearly the same
of a host name that it can't resolve (`rp != nullptr` instead of `ifa != nullptr`); that is another cause. An address of
a peer that has no family, beside a NCCL_SOCKET_IFNAME that is set, is a weaker sign of the same, and names nobody.

## Example
`NCCL WARN Bootstrap : no socket interface found`

## Fix
`ip -br addr` on that host; name an interface that is up there, or exclude the wrong ones
(`NCCL_SOCKET_IFNAME=^docker0,lo`).

## Limits
An interface that exists but does not reach the peers gives other errors.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim, tell_of
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import statements
from whichrank.timeline.job_state.known_messages import of_cause
from whichrank.timeline.network import interface_names

CODE = "NETI102"
CAUSE = "no-usable-interface"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "See what the host has (ip -br addr) and name an interface that is up: NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME.",
        "Where names differ between hosts, give a prefix (NCCL) or set the variable per host.",
        "On one machine without a network: NCCL_SOCKET_IFNAME=lo and GLOO_SOCKET_IFNAME=lo.",
    ),
    blames="host",
    next=(NextStep("ip -br addr", "shows which interfaces are up and have an address", (CAUSE,), "none"),),
)
_NCCL = (
    "no socket interface found", "No usable listening interface found", "No IP interface found", "no interface found",
    "No interface found in the same subnet", "Address family not supported by protocol",
)  # fmt: skip
_UNSET = "nccl-address-unset"
_VARIABLE = "NCCL_SOCKET_IFNAME"
_GLOO = ("Unable to find address for", "Unable to find interface for", "ifa != nullptr")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    signs = statements.said(case, *_NCCL)
    signs += [
        s
        for s in statements.said(case, *_GLOO)
        if not interface_names.host_name(s) and not interface_names.is_foreign(interface_names.wanted(s))
    ]
    signs = statements.first_to_fail(signs)
    if not signs:
        return _not_filled_in(case)
    ranks = statements.unless_all(case, statements.ranks_of(signs))
    name = next((n for s in signs if (n := interface_names.wanted(s))), "")
    which = f"no interface called {name}" if name else "no network interface that it can use"
    return [
        building.found(case, _CLAIM, signs, f"{building.who(case, ranks, signs)} found {which}.", Grade.PROVES, ranks)
    ]


def _not_filled_in(case: Case) -> list[Finding]:
    """An address that is none, where the interface is set by name: on some host there may be none of that name."""
    unset = [s for s in of_cause(case, CAUSE) if s.id == _UNSET]
    names = sorted({name for process in case.nccl if (name := process.env.get(_VARIABLE))})
    if not unset or not names:
        return []
    message = (
        f"The address of a peer was never filled in, and {_VARIABLE} is set to {' or '.join(names[:3])}: that "
        "interface may be missing, or without an address, on one of the hosts."
    )
    return [replace(tell_of(case, _CLAIM, "", unset, unset[0].signature.grade), message=message)]
