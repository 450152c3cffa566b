"""A host, an uplink or a pair is far slower than the others.

What it finds: pairs whose TCP throughput is below half of what is usual here (the median; of two kinds of pairs the
faster one's), located to a host, to what several hosts share, or to the pair.

Why it happens: a port that negotiated a lower speed, a limiter, a damaged lane, a busy uplink.

How it decides: pairs are measured in rounds, each host with one partner at a time; what looks slow is measured again
with hosts that are known to be fast. In `--thorough` runs every pair is measured.

Example: `Slow: 0.092 Gb/s where 4.100 Gb/s is usual, node6: with every host it was tested with`

Fix: look at the negotiated speed (ethtool DEV), cable and switch port of the named host.

Limits: one TCP stream of one process does not fill fast links: absolute numbers are lower bounds. RDMA is measured
by perftest (PREF112).
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.inspection import Inspection, usual_gbits
from whichrank.rules.preflight_findings import found, located, measured, one_direction

CODE = "PREF106"
CAUSE = "slow-network"
FIX = ("Look at the negotiated speed (ethtool DEV), the cable and the switch port of what is named.",)


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    if inspection.slow is None:
        return NotEvaluated("throughput between at least two hosts (--full measures it)")
    rates = [r for r in inspection.rates if r.gbits is not None]
    usual = usual_gbits(rates)
    findings = []
    for subject, words in located(inspection.slow):
        names = {*subject.hosts, *(end.host for link in subject.links for end in (link.a, link.b))}
        pairs = bool(subject.links)
        own = [
            r for r in rates if ({r.a, r.b} <= names if pairs else bool(names & {r.a, r.b})) and (r.gbits or 0) < usual
        ]
        if not own:
            continue
        refs = [measured("rate", f"{r.a} → {r.b}: {r.gbits:.3f} Gb/s (usual here: {usual:.3f})", r.a) for r in own[:4]]
        way = one_direction(subject, [(r.a, r.b) for r in own if (r.gbits or 0) < usual / 2])
        message = f"Slow: {min(r.gbits or 0 for r in own):.3f} Gb/s where {usual:.3f} Gb/s is usual, {words}{way}."
        findings.append(found(CODE, CAUSE, "slow", subject, message, refs, FIX))
    return findings
