"""Hosts do not agree on what a host name means.

What it finds: a name that one host resolves to another address than the others do, or not at all; a name that leads
to the wrong host.

Why it happens: /etc/hosts that were edited by hand, stale DNS caches, re-used addresses.

How it decides: every host resolves every name; the answers are compared with the addresses that the named host really
has. The host whose answer is wrong is named: its table must be corrected.

Example: `node2 resolves node5 to 10.0.0.99; node5 has 10.0.0.5`

Fix: correct /etc/hosts (or DNS) on the named host.

Limits: names that the job takes from elsewhere (a scheduler's short names) are not known here.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.inspection import Inspection
from whichrank.rules.preflight_findings import found, hosts, measured

CODE = "PREF107"
CAUSE = "hostname-resolution"
FIX = ("Correct /etc/hosts (getent hosts NAME shows what is used) or DNS on the named host.",)


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    if len(inspection.names) < 2:
        return NotEvaluated("name lookups on at least two hosts")
    wrong: dict[str, list[str]] = defaultdict(list)
    for asker, answers in inspection.names.items():
        for name, addresses in answers.items():
            if words := _wrong(inspection, asker, name, list(addresses)):
                wrong[asker].append(words)
    # If most hosts are wrong about a name, the name itself is: then it is told once for each of them all the same.
    return [
        found(CODE, CAUSE, "crash", hosts(asker), f"On {asker}: {'; '.join(words[:3])}.",
              [measured("resolve", w, asker) for w in words[:4]], FIX)
        for asker, words in wrong.items()
    ]  # fmt: skip


def _wrong(inspection: Inspection, asker: str, name: str, addresses: list[str]) -> str:
    if not addresses:
        return f"{name} does not resolve" + ("; other hosts resolve it" if _others(inspection, asker, name) else "")
    own = set(inspection.addresses.get(name, ()))
    if not own:
        usual = _others(inspection, asker, name).most_common(1)
        if usual and usual[0][1] > 1 and not set(addresses) & set(usual[0][0]):
            return f"{name} resolves to {addresses[0]}, on {usual[0][1]} other hosts to {usual[0][0][0]}"
        return ""
    if set(addresses) & own:
        return ""
    if all(a.startswith("127.") or a == "::1" for a in addresses) and name == asker:
        return ""  # its own name may mean loopback; the check of the interface judges that
    return f"{name} resolves to {addresses[0]}; {name} has {', '.join(sorted(own)[:3])}"


def _others(inspection: Inspection, asker: str, name: str) -> Counter[tuple[str, ...]]:
    """What other hosts resolve it to, and how many of them."""
    return Counter(
        tuple(answers[name]) for who, answers in inspection.names.items() if who != asker and answers.get(name)
    )
