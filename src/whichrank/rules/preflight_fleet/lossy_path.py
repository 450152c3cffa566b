"""Packets are lost between hosts.

What it finds: hosts, uplinks or single pairs that lose more than 1 % of small packets.

Why it happens: a damaged cable or transceiver, an overloaded switch port, a misconfigured limiter. TCP hides it, at a
fraction of the speed; RDMA over Ethernet suffers even more.

How it decides: each end counts the small datagrams that arrive of those sent; both directions count. Hosts are tested
in rounds of pairs: one that loses with every partner is named itself.

Example: `5.5 % of the packets from node4 to node1 are lost, and as many towards all others`

Fix: clean or replace cable and transceiver of the named host, look at the error counters of its switch port.

Limits: loss that only heavy traffic causes is not seen without --full. Less than 1 % is not seen reliably.
"""

from __future__ import annotations

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, NotEvaluated, Subject
from whichrank.records.inspection import Inspection, Volley
from whichrank.rules.preflight_findings import found, located, measured

CODE = "PREF104"
CAUSE = "packet-loss"
FIX = ("Check cable, transceiver and switch port of what is named; look at ethtool -S and the port's counters.",)


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    if inspection.loss is None:
        return NotEvaluated("datagrams between at least two hosts")
    findings = []
    for subject, words in located(inspection.loss):
        refs = _refs(inspection, subject)
        if refs:
            message = f"Packets are lost, {words}."
            findings.append(found(CODE, CAUSE, "slow", subject, message, refs, FIX))
    return findings


def share(volley: Volley) -> float | None:
    """How much of the small packets was lost; None where nothing arrived: that is another matter."""
    small = min(volley.sent, default=0)
    sent = volley.sent.get(small, 0)
    arrived = volley.arrived.get(small, 0)
    return None if not sent or not arrived else max(0.0, 1 - arrived / sent)


def _refs(inspection: Inspection, subject: Subject) -> list[Ref]:
    names = {*subject.hosts, *(end.host for link in subject.links for end in (link.a, link.b))}
    told = []
    for volley in inspection.volleys:
        lost = share(volley)
        fits = {volley.a, volley.b} <= names if subject.links else bool(names & {volley.a, volley.b})
        if lost and lost > 0.01 and fits:
            small = min(volley.sent)
            words = f"{volley.a} → {volley.b}: {volley.arrived.get(small, 0)} of {volley.sent[small]} arrived"
            told.append(measured("volley", words, volley.a))
    return told[:4]
