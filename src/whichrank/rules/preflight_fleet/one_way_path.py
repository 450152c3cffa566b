"""Packets pass in one direction only.

What it finds: hosts or pairs where datagrams arrive in one direction and none in the other.

Why it happens: a firewall without a rule for the way back, asymmetric routing, a half-broken link.

How it decides: both ends count what arrives, and report over another way (ssh, srun …). Only then a direction can be
told: a connection that times out looks the same from both sides.

Example: `nothing that node3 sends arrives at any host; what is sent to it arrives`

Fix: look at filters and routes on the way out of the named host, for the direction named.

Limits: filters on UDP alone look the same; the connections tell.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.inspection import Inspection, Volley
from whichrank.rules.preflight_findings import found, hosts, link, measured

CODE = "PREF103"
CAUSE = "firewall"
FIX = ("Look at filters and routes for the direction named: the other direction works.",)


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    volleys: dict[tuple[str, str], Volley] = {}
    for volley in inspection.volleys:
        before = volleys.get((volley.a, volley.b))
        # Of several the one that arrived: a way that carried anything is open.
        if sum(volley.sent.values()) and (before is None or not sum(before.arrived.values())):
            volleys[volley.a, volley.b] = volley
    if not volleys:
        return NotEvaluated("datagrams between at least two hosts")
    lost = {way for way, v in volleys.items() if not sum(v.arrived.values())}
    one_way = [way for way in lost if (way[1], way[0]) in volleys and (way[1], way[0]) not in lost]
    # TCP failing as well is what hurts a job; UDP alone may be filtered on purpose.
    connected = {(a.a, a.b) for a in inspection.attempts if a.outcome == "connected"}
    one_way = sorted(way for way in one_way if way not in connected)
    findings: list[Finding] = []
    explained: set[tuple[str, str]] = set()
    names = {name for way in volleys for name in way}
    for host in sorted(names):
        for side, words in ((0, f"Nothing that {host} sends arrives"), (1, f"Nothing that is sent to {host} arrives")):
            tested = [way for way in volleys if way[side] == host]
            bad = [way for way in one_way if way[side] == host]
            if len(bad) >= 2 and len(bad) == len(tested):
                explained |= set(bad)
                message = f"{words}; the other direction passes."
                findings.append(found(CODE, CAUSE, "hang", hosts(host), message, _refs(volleys, bad), FIX))
    for way in one_way:
        if way not in explained:
            message = f"Nothing that {way[0]} sends arrives at {way[1]}; the other direction passes."
            findings.append(found(CODE, CAUSE, "hang", link(*way), message, _refs(volleys, [way]), FIX))
    return findings


def _refs(volleys: dict[tuple[str, str], Volley], ways: list[tuple[str, str]]) -> list:  # type: ignore[type-arg]
    told = []
    for a, b in ways[:3]:
        there, back = volleys[a, b], volleys.get((b, a))
        words = f"{a} → {b}: {sum(there.arrived.values())} of {sum(there.sent.values())} arrived"
        if back:
            words += f"; {b} → {a}: {sum(back.arrived.values())} of {sum(back.sent.values())}"
        told.append(measured("volley", words, a))
    return told
