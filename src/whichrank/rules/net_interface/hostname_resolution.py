"""A host name can't be resolved.

## What it finds
Name look-ups that failed when ranks looked for the store, the rendezvous or each other.

## Why it happens
A short name that only one network knows, a missing entry in `/etc/hosts`, a name service that is down or not yet
ready in a fresh pod.

## How it decides
The resolver's own error in torch's, Python's or NCCL's words, on processes that made no process group later.

## Example
`The IPv6 network addresses of (node0, 29500) cannot be retrieved (gai error: -2 - Name or service not known).`

## Fix
Use a name that resolves on every host, or an address; check `getent hosts NAME` on the host that failed.

## Limits
A name that resolves to the wrong address gives no such error.
"""

from __future__ import annotations

import re

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import crashes
from whichrank.rules.crashes import Claim
from whichrank.timeline.case import Case

CODE = "NETI101"
CAUSE = "hostname-resolution"

_WORDS = (
    "gai error", "gaierror", "Name or service not known", "name resolution", "nodename nor servname",
    "getaddrinfo error", "No address associated with hostname",
)  # fmt: skip
_NAME = re.compile(r"addresses of \(([^,)]{1,253}), \d{1,5}\)")
_FIX = (
    "Use a name that every host resolves, or the address itself, in MASTER_ADDR and --rdzv-endpoint.",
    "Check on the host that failed: getent hosts NAME; add it to /etc/hosts or the cluster's name service.",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not crashes.heard(case):
        return crashes.SILENT
    told = [s for s in crashes.signs_of(case, "store_error") if s.event and s.event.text("what") == "dns"]
    said = [*told, *crashes.said(case, *_WORDS)]
    said += crashes.beside(said, crashes.known(case, CAUSE))
    signs = [s for s in said if not crashes.went_on(case, s)]
    signs = crashes.first_to_fail(signs)
    if not signs:
        return []
    ranks = crashes.unless_all(case, crashes.ranks_of(signs))
    name = next((m[1] for s in signs if (m := _NAME.search(s.text) or _NAME.search(s.ref.quote))), "")
    probe = NextStep(f"getent hosts {name or 'NAME'}", "tells what the name resolves to on that host", (CAUSE,), "none")
    claim = Claim(CODE, CAUSE, fix=_FIX, blames="host", next=(probe,))
    message = f"{crashes.who(case, ranks, signs)} could not resolve {f'the name {name}' if name else 'a host name'}."
    return [crashes.found(case, claim, signs, message, 0.88, ranks)]
