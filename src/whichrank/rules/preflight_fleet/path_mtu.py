"""Large packets vanish on the way: a black hole for the path MTU.

What it finds: hosts, uplinks or pairs where small packets arrive and packets as large as both interfaces allow don't,
without any notice.

Why it happens: a switch port or tunnel with a smaller MTU than the hosts, and no router that could say so, or ICMP that
is filtered. Connections open, small messages pass, and the first large transfer hangs.

How it decides: datagrams that must not be fragmented, of the smaller of both ends' MTU, counted at the receiver. If
the kernel learns the real MTU from the network, TCP copes and nothing is reported. Ends with different MTUs are no
fault: TCP agrees on the smaller.

Example: `9000-byte packets between node5 and all others vanish; 1500-byte packets arrive`

Fix: raise the MTU of the switch port, or lower the interface's (ip link set DEV mtu 1500). As a stopgap
net.ipv4.tcp_mtu_probing=1.

Limits: RDMA does not use these packets; its MTU is another one.
"""

from __future__ import annotations

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, NotEvaluated, Subject
from whichrank.records.inspection import Inspection, Volley
from whichrank.rules.preflight_findings import found, located, measured

CODE = "PREF105"
CAUSE = "mtu-mismatch"
FIX = (
    "Raise the MTU of the switch port or tunnel on that path, or lower that of the hosts' interfaces to what passes.",
    "Until then: sysctl net.ipv4.tcp_mtu_probing=1 on the hosts.",
)


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    if inspection.paths is None:
        return NotEvaluated("large datagrams between at least two hosts")
    findings = []
    for subject, words in located(inspection.paths):
        holes = _holes(inspection, subject)
        if holes:
            vanish, pass_ = hole(holes[0]) or (0, 0)
            message = f"Packets of {vanish} bytes vanish while {pass_} bytes arrive, {words}."
            findings.append(found(CODE, CAUSE, "hang", subject, message, _refs(holes), FIX))
    return findings


def hole(volley: Volley) -> tuple[int, int] | None:
    """The smallest size of which nothing arrived, and the largest below it that did; None where there is no hole."""
    passed = [size for size, count in volley.arrived.items() if count]
    gone = [size for size, count in volley.sent.items() if count >= 4 and not volley.arrived.get(size)]
    below = [size for size in passed if not gone or size < min(gone)]
    return (min(gone), max(below)) if gone and below else None


def _holes(inspection: Inspection, subject: Subject) -> list[Volley]:
    names = {*subject.hosts, *(end.host for link in subject.links for end in (link.a, link.b))}
    pairs = bool(subject.links)
    return [v for v in inspection.volleys
            if hole(v) and ({v.a, v.b} <= names if pairs else bool(names & {v.a, v.b}))]  # fmt: skip


def _refs(volleys: list[Volley]) -> list[Ref]:
    told = []
    for v in volleys[:4]:
        words = ", ".join(f"{size} bytes: {v.arrived.get(size, 0)} of {sent}" for size, sent in sorted(v.sent.items()))
        told.append(measured("volley", f"{v.a} → {v.b}: {words}", v.a))
    return told
