"""Packets are lost between hosts.

What it finds: hosts, uplinks or single pairs that lose more than 1 % of small packets.

Why it happens: a damaged cable or transceiver, an overloaded switch port, a misconfigured limiter. TCP hides it, at a
fraction of the speed; RDMA over Ethernet suffers even more.

How it decides: each end counts the small datagrams that arrive of those sent; both directions count. Hosts are tested
in rounds of pairs: one that loses with every partner is named itself.

Example: `Packets are lost, node4: with every host it was tested with, in what it receives`

Fix: clean or replace cable and transceiver of the named host, look at the error counters of its switch port.

Limits: loss that only heavy traffic causes is not seen without --full. Less than 1 % is not seen reliably.
"""

from __future__ import annotations

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, NotEvaluated, Subject
from whichrank.records.inspection import Inspection, Volley
from whichrank.rules.preflight_findings import found, located, measured, one_direction

CODE = "PREF104"
CAUSE = "packet-loss"
FIX = ("Check cable, transceiver and switch port of what is named; look at ethtool -S and the port's counters.",)


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    if inspection.loss is None:
        return NotEvaluated("datagrams between at least two hosts")
    findings = []
    for subject, words in located(inspection.loss):
        volleys = _lossy(inspection, subject)
        if volleys:
            message = f"Packets are lost, {words}{one_direction(subject, [(v.a, v.b) for v in volleys])}."
            findings.append(found(CODE, CAUSE, "slow", subject, message, [_ref(v) for v in volleys[:4]], FIX))
    return findings


def share(volley: Volley) -> float | None:
    """How much of the small packets was lost; None where nothing arrived: that is another matter."""
    small = min(volley.sent, default=0)
    sent = volley.sent.get(small, 0)
    arrived = volley.arrived.get(small, 0)
    return None if not sent or not arrived else max(0.0, 1 - arrived / sent)


def _lossy(inspection: Inspection, subject: Subject) -> list[Volley]:
    """Those of the hosts or the link that lost packets."""
    names = {*subject.hosts, *(end.host for link in subject.links for end in (link.a, link.b))}
    return [
        volley for volley in inspection.volleys
        if (share(volley) or 0) > 0.01
        and ({volley.a, volley.b} <= names if subject.links else bool(names & {volley.a, volley.b}))
    ]  # fmt: skip


def _ref(volley: Volley) -> Ref:
    small = min(volley.sent)
    words = f"{volley.a} → {volley.b}: {volley.arrived.get(small, 0)} of {volley.sent[small]} arrived"
    return measured("volley", words, volley.a)
