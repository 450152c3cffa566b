"""Something between the hosts blocks the connections.

## What it finds
Connections of NCCL, MPI or Gloo that are rejected with "No route to host" or that get no answer at all.

## Why it happens
NCCL and Gloo use ports that the system chooses. A host firewall or a security group that opens only the rendezvous
port lets the job start and then blocks it.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`NCCL WARN socketPollConnect: Connect to 10.1.2.4<40123> returned 113(No route to host)`

## Fix
Allow all TCP between the hosts on that network (firewalld, iptables, security group), or open a range and set
net.ipv4.ip_local_port_range to it. If the address is not the one that the hosts should use, name the interface:
NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME.

## Limits
A refused connection is no sign of a firewall: then nobody listens. A host that is down and a wrong subnet stay silent
too.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "NETI202"
CAUSE = "firewall"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        (
            "Allow all TCP between the hosts on that network (firewalld, iptables, security group), or open a range "
            "and set net.ipv4.ip_local_port_range to it."
        ),
        (
            "If the address is not the one that the hosts should use, name the interface: NCCL_SOCKET_IFNAME, "
            "GLOO_SOCKET_IFNAME."
        ),
    ),
    blames="host",
    next=(
        NextStep(
            "nc -vz ADDRESS PORT",
            'at once refused: nobody listens; silence or "no route": it is blocked',
            (
                "firewall",
                "wrong-interface",
            ),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "{who} could not connect to a peer; something on the way blocks it: {what}.")
