"""A host's own name resolves to 127.0.1.1, and its ranks announce that address.

## What it finds
Gloo connections to or from 127.0.1.1.

## Why it happens
Gloo takes the address that the host's name resolves to where no interface is named. Debian and Ubuntu write the host's
own name as 127.0.1.1 into `/etc/hosts`, so ranks on other hosts connect to themselves.

## How it decides
That address stands in Gloo's own message. 127.0.0.1 may also come of an interface `lo` that was chosen: the rule on the
wrong interface tells that. The host is the one whose `/etc/hosts` gives its own name that address while the tables of
others give it another; else the one rank that was not refused, where all others were.

## Example
`timed out connecting: SO_ERROR: Connection refused, remote=[127.0.1.1]:35011`

## Fix
Let the host's own name resolve to an address that the other hosts reach, or name the interface.

## Limits
The message is that of the rank that could not connect; whose address it was, it does not say. Where every host has such
a row, all are at fault, and nobody is named.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.model.findings import Finding, NextStep, NotEvaluated, Subject
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements

CODE = "NETI210"
CAUSE = "hostname-resolution"

_CLAIM = Claim(
    CODE,
    CAUSE,
    blames="host",
    fix=(
        "Let the host's own name resolve to an address that the other hosts reach: /etc/hosts, or the name service.",
        "Or name the interface, so that Gloo looks no name up: GLOO_SOCKET_IFNAME on every host.",
    ),
    alternatives=(("wrong-interface", "an interface of that address may have been chosen"),),
    next=(NextStep("getent hosts $(hostname)", "tells what the name resolves to on each host", (CAUSE,), "none"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = known_messages.seen(case, "gloo-own-name-loopback")
    if not told or known_messages.seen(case, "torch-filestore"):  # addresses of an earlier run lie in a file
        return []
    says = "A host's own name resolves to loopback, and its ranks announce that address: {what}."
    found = building.tell_of(case, _CLAIM, says, told, known_messages.grade(told))
    if case.looped_hosts:
        return [replace(found, subject=Subject(hosts=tuple(sorted(case.looped_hosts))))]
    refused = {s.sign.rank for s in told}
    others = [rank for rank in range(case.world) if rank not in refused]
    alone = len(others) == 1 and len(refused) > 1 and None not in refused
    return [replace(found, subject=Subject(ranks=tuple(others))) if alone else found]
