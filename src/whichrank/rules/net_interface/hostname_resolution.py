"""A host name can't be resolved.

## What it finds
Name look-ups that failed when ranks looked for the store, the rendezvous or each other.

## Why it happens
A short name that only one network knows, a missing entry in `/etc/hosts`, a name service that is down or not yet
ready in a fresh pod.

## How it decides
The resolver's own error in torch's, Python's or NCCL's words, on processes that made no process group later, and
on hosts whose agents never reached the rendezvous. Gloo
looks its own host's name up where no interface is given: it says `rp != nullptr. Unable to find address for` a name.
That host is named, and so is the one of a job that runs on a single host.

## Example
`The IPv6 network addresses of (node0, 29500) cannot be retrieved (gai error: -2 - Name or service not known).`

## Fix
Use a name that resolves on every host, or an address; check `getent hosts NAME` on the host that failed.

## Limits
A name that resolves to the wrong address gives no such error.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.events.startup import RendezvousError, StoreError
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.identity.layouts import on_one_host
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state import statements
from whichrank.timeline.network import interface_names

CODE = "NETI101"
CAUSE = "hostname-resolution"

_WORDS = (
    "gai error", "gaierror", "Name or service not known", "name resolution", "nodename nor servname",
    "getaddrinfo error", "No address associated with hostname",
)  # fmt: skip
_LOOPBACK = "[127.0.1.1]"
"""A name that resolves, to loopback, is another rule's."""
_NAME = re.compile(r"addresses of \(([^,)]{1,253}), \d{1,5}\)")
_FIX = (
    "Use a name that every host resolves, or the address itself, in MASTER_ADDR and --rdzv-endpoint.",
    "Check on the host that failed: getent hosts NAME; add it to /etc/hosts or the cluster's name service.",
)
_GLOO_FIX = (
    "Name the interface, so that Gloo looks no name up: GLOO_SOCKET_IFNAME on every host.",
    "Or let the host's own name lead to an address of this host: /etc/hosts, or the cluster's name service.",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = statements.of_kind(case, StoreError, where=lambda e: e.what == "dns")
    gloo = [s for s in statements.said(case, "Unable to find address for") if interface_names.host_name(s)]
    said = [*told, *statements.said(case, *_WORDS), *gloo]
    said += [s for s in statements.beside(said, statements.known(case, CAUSE)) if _LOOPBACK not in s.text]
    joined = {short_name(host) for event in case.events(RendezvousError) for host in event.dropped}
    signs = [s for s in said if not statements.went_on(case, s) and short_name(s.host or "") not in joined]
    signs = statements.first_to_fail(signs)
    if not signs:
        return []
    ranks = statements.unless_all(case, statements.ranks_of(signs))
    name = next((n for s in signs if (n := _name(s))), "")
    probe = NextStep(f"getent hosts {name or 'NAME'}", "tells what the name resolves to on that host", (CAUSE,), "none")
    own = bool(gloo) and all(s in gloo for s in signs)
    claim = Claim(CODE, CAUSE, fix=_GLOO_FIX if own else _FIX, blames="host", next=(probe,))
    if own:
        claim = replace(claim, alternatives=(("wrong-interface", "it may resolve, to no address of this host"),))
    message = f"{building.who(case, ranks, signs)} could not resolve {f'the name {name}' if name else 'a host name'}."
    found = building.found(case, claim, signs, message, Grade.SUPPORTS if own else Grade.PROVES, ranks)
    its_own = own or on_one_host(case.layouts)
    if name and its_own and found.subject == Subject():
        return [replace(found, subject=Subject(hosts=(name,)))]
    return [found]


def _name(sign: statements.Statement) -> str:
    """The name that was looked up, without the full stop of a sentence or of the root zone."""
    found = _NAME.search(sign.text) or _NAME.search(sign.ref.quote)
    return (found[1] if found else interface_names.host_name(sign)).rstrip(".")
