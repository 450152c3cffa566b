"""A host, or a way between two hosts, does not let connections through.

What it finds: connections between hosts that are dropped, rejected or cut, on the rendezvous port or on ports of the
kernel's choice, which NCCL and Gloo use.

Why it happens: firewalls of hosts, security groups, network policies. Rendezvous often works because only its port was
opened; NCCL then hangs.

How it decides: every host tries every other, on ports where the other one listens: on the rendezvous port and on high
ports spread over the kernel's range. Silence means that packets are dropped; "no route to host" at once, and a reset
from a port that is open, are the refusal of a firewall. If the connections of a host with all others fail, the host is
named; if the hosts fall into groups that don't reach each other, the smaller groups are; if hosts fail everywhere, all
of them together; else the pair.

Example: `connections to node3 on high ports are dropped; on port 29500 they pass`

Fix: allow all TCP between the hosts of the cluster, on the interface that the job uses.

Limits: a firewall that only limits the number of connections is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from whichrank.model.findings import Finding, NotEvaluated, Subject
from whichrank.records.inspection import Attempt, Inspection
from whichrank.rules.preflight_findings import found, hosts, link, measured

CODE = "PREF102"
CAUSE = "firewall"
FIX = (
    "Allow all TCP between the hosts of the job: NCCL and Gloo take ports of the kernel's choice.",
    "Look at firewalld/nftables of the named host, at security groups and at network policies.",
)
_BLOCKED = ("dropped", "rejected", "refused", "unreachable", "mute", "broken")
Place = tuple[Subject, str, list[Attempt]]
"""Where it is, in words too, and the attempts that show it."""


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    # A connection to an address that the other host does not have says nothing about the way to it.
    own = inspection.addresses
    attempts = [a for a in inspection.attempts if a.outcome != "unresolved" and a.address in own.get(a.b, [a.address])]
    if not attempts:
        return NotEvaluated("connections between at least two hosts")
    failed = [a for a in attempts if a.outcome in _BLOCKED]
    findings: list[Finding] = []
    for subject, words, cases in _located(attempts, failed):
        kinds, ways = {a.kind for a in cases}, {(a.a, a.b) for a in cases}
        passed = {a.kind for a in attempts if a.outcome == "connected" and (a.a, a.b) in ways}
        also = ""
        if kinds == {"high"} and "rendezvous" in passed:
            also = " The rendezvous port passes, so the job would start and then hang."
        message = f"Connections {words} {_ports(cases, attempts)} are {_how(cases)}.{also}"
        refs = [
            measured("connect", f"{a.a} → {a.b} ({a.address}:{a.port}): {a.outcome}, {a.detail}", a.a)
            for a in cases[:4]
        ]
        findings.append(found(CODE, CAUSE, "hang", subject, message, refs, FIX))
    return findings


def _located(attempts: Sequence[Attempt], failed: Sequence[Attempt]) -> Iterable[Place]:
    """Hosts first; then groups, and pairs that neither explains."""
    names = list(dict.fromkeys(name for a in attempts for name in (a.a, a.b)))
    guilty = _hosts(names, failed)
    everywhere = len(names) > 2 and {_ordered(a) for a in failed} == {_ordered(a) for a in attempts}
    if everywhere or len(guilty) * 2 > len(names):
        yield hosts(*names), f"between all {len(names)} hosts", list(failed)
        return
    left = list(failed)
    for host in guilty:
        cases = [a for a in left if host in (a.a, a.b)]
        left = [a for a in left if host not in (a.a, a.b)]
        to, out = any(a.b == host for a in cases), any(a.a == host for a in cases)
        words = f"to and from {host}" if to and out else f"to {host}" if to else f"from {host}"
        yield hosts(host), words, cases
    groups = _groups([name for name in names if name not in guilty], left)
    if groups:
        apart = groups[1:] if len(groups[0]) > len(groups[1]) else groups
        words = "between " + " and ".join(", ".join(group) for group in groups)
        yield hosts(*(name for group in apart for name in group)), words, left
        return
    for a, b in dict.fromkeys(_ordered(a) for a in left):
        cases = [x for x in left if {x.a, x.b} == {a, b}]
        ways = {(x.a, x.b) for x in cases}
        words = f"from {cases[0].a} to {cases[0].b}" if len(ways) == 1 else f"between {a} and {b}"
        yield link(a, b), words, cases


def _hosts(names: Sequence[str], failed: Sequence[Attempt]) -> list[str]:
    """Those that fail with everybody; between two of them nobody knows whose fault it is, and nobody asks."""
    guilty: list[str] = []
    left = list(failed)
    while left:
        peers = _peers(left)
        worst = max(names, key=lambda name: len(peers.get(name, ())))
        others = len(names) - 1 - len(guilty)
        if others < 2 or len(peers.get(worst, ())) < others:
            break
        guilty.append(worst)
        left = [a for a in left if worst not in (a.a, a.b)]
    return guilty


def _groups(names: Sequence[str], failed: Sequence[Attempt]) -> list[list[str]]:
    """Hosts that reach each other but nobody of another group, the largest first; none where it is not so clear."""
    bad = {_ordered(a) for a in failed}
    groups: list[list[str]] = []
    for name in names:
        group = next((g for g in groups if not any(_pair(name, other) in bad for other in g)), None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    across = {_pair(a, b) for one, other in combinations(groups, 2) for a in one for b in other}
    clear = len(groups) > 1 and across == bad and all(len(group) > 1 for group in groups)
    return sorted(groups, key=len, reverse=True) if clear else []


def _pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a <= b else (b, a)


def _ordered(attempt: Attempt) -> tuple[str, str]:
    return _pair(attempt.a, attempt.b)


def _peers(failed: Sequence[Attempt]) -> dict[str, set[str]]:
    """Host -> with whom it failed."""
    found: dict[str, set[str]] = {}
    for attempt in failed:
        found.setdefault(attempt.a, set()).add(attempt.b)
        found.setdefault(attempt.b, set()).add(attempt.a)
    return found


def _ports(cases: Sequence[Attempt], attempts: Sequence[Attempt]) -> str:
    """Which of the ports that were tried between these hosts."""
    ways = {(a.a, a.b) for a in cases}
    tried = {(a.kind, a.b, a.port) for a in attempts if (a.a, a.b) in ways}
    closed = {(a.kind, a.b, a.port) for a in cases}
    kinds = {a.kind for a in cases}
    if kinds == {"rendezvous"}:
        return f"on the rendezvous port {cases[0].port}"
    if closed == tried and len(kinds) > 1:
        return "on every port tried"
    high = sorted(port for kind, _, port in closed if kind == "high")
    count = sum(kind == "high" for kind, _, _ in tried)
    some = "high ports" if len(high) == count else f"some high ports ({high[0]} to {high[-1]}, {len(high)} of {count})"
    return f"on {some}" if kinds == {"high"} else f"on the rendezvous port and on {some}"


def _how(cases: Sequence[Attempt]) -> str:
    outcomes = {a.outcome for a in cases}
    if "rejected" in outcomes:
        outcomes -= {"dropped", "unreachable"}  # hosts limit how many rejections they send
    return " or ".join(sorted(_WORDS.get(outcome, outcome) for outcome in outcomes))


_WORDS = {
    "unreachable": "without an answer (host down or no route)",
    "mute": "accepted and then silent",
    "refused": "reset although somebody listens there",
}
