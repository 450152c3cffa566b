"""A host, or a way between two hosts, does not let connections through.

What it finds: connections between hosts that are dropped, rejected or cut, on the rendezvous port or on ports of the
kernel's choice, which NCCL and Gloo use.

Why it happens: firewalls of hosts, security groups, network policies. Rendezvous often works because only its port was
opened; NCCL then hangs.

How it decides: every host tries every other. Silence means that packets are dropped; "no route to host" at once is a
firewall's refusal; "refused" means that nothing listened and is not a sign of a firewall. If all connections to a host
fail, the host is named; if all from it fail as well, what is in its way both ways; else the pair.

Example: `connections to node3 on high ports are dropped; on port 29500 they pass`

Fix: allow all TCP between the hosts of the cluster, on the interface that the job uses.

Limits: a firewall that only limits the number of connections is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from whichrank.model.findings import Finding, NotEvaluated, Subject
from whichrank.records.inspection import Attempt, Inspection
from whichrank.rules.preflight_findings import found, hosts, link, measured

CODE = "PREF102"
CAUSE = "firewall"
FIX = (
    "Allow all TCP between the hosts of the job: NCCL and Gloo take ports of the kernel's choice.",
    "Look at firewalld/nftables of the named host, at security groups and at network policies.",
)
_BLOCKED = ("dropped", "rejected", "unreachable", "mute", "broken")


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    # A connection to an address that the other host does not have says nothing about the way to it.
    own = inspection.addresses
    attempts = [a for a in inspection.attempts if a.outcome != "unresolved" and a.address in own.get(a.b, [a.address])]
    if not attempts:
        return NotEvaluated("connections between at least two hosts")
    failed = [a for a in attempts if a.outcome in _BLOCKED]
    findings: list[Finding] = []
    for subject, words, cases in _located(attempts, failed):
        kinds = sorted({a.kind for a in cases})
        passing = {a.kind for a in attempts if a.outcome == "connected"} if len(kinds) == 1 else set()
        where = _ports(kinds, cases)
        also = ""
        if kinds == ["high"] and "rendezvous" in passing:
            also = " The rendezvous port passes, so the job would start and then hang."
        first = cases[0]
        message = f"Connections {words} {where} are {_how(cases)}.{also}"
        refs = [
            measured("connect", f"{a.a} → {a.b} ({a.address}:{a.port}): {a.outcome}, {a.detail}", a.a)
            for a in cases[:4]
        ]
        findings.append(found(CODE, CAUSE, "hang", subject, message, refs or [measured("connect", first.outcome)], FIX))
    return findings


def _located(attempts: Sequence[Attempt], failed: Sequence[Attempt]) -> Iterable[tuple[Subject, str, list[Attempt]]]:
    """Hosts first; pairs that no host explains after them."""
    left = list(failed)
    names = list(dict.fromkeys(name for a in attempts for name in (a.a, a.b)))
    partners = len(names) - 1
    while left and partners > 1:
        worst = max(names, key=lambda name: len(_peers(name, left)))
        if len(_peers(worst, left)) < max(2, partners):
            break
        cases = [a for a in left if worst in (a.a, a.b)]
        to, out = any(a.b == worst for a in cases), any(a.a == worst for a in cases)
        words = f"to and from {worst}" if to and out else f"to {worst}" if to else f"from {worst}"
        yield hosts(worst), words, cases
        left = [a for a in left if a not in cases]
    pairs = dict.fromkeys(tuple(sorted((a.a, a.b))) for a in left)
    for a, b in pairs:
        cases = [x for x in left if {x.a, x.b} == {a, b}]
        ways = {(x.a, x.b) for x in cases}
        words = f"from {cases[0].a} to {cases[0].b}" if len(ways) == 1 else f"between {a} and {b}"
        yield link(a, b), words, cases


def _peers(name: str, failed: Sequence[Attempt]) -> set[str]:
    return {a.b if a.a == name else a.a for a in failed if name in (a.a, a.b)}


def _ports(kinds: Sequence[str], cases: Sequence[Attempt]) -> str:
    if len(kinds) > 1:
        return "on every port tried"
    return "on high ports" if kinds == ["high"] else f"on the rendezvous port {cases[0].port}"


def _how(cases: Sequence[Attempt]) -> str:
    outcomes = sorted({a.outcome for a in cases})
    return {"unreachable": "without an answer (host down or no route)", "mute": "accepted and then silent"}.get(
        outcomes[0], outcomes[0]
    ) if len(outcomes) == 1 else " or ".join(outcomes)  # fmt: skip
