"""An RDMA adapter, its uplink or a pair of adapters is far slower than its port or than the others of its rail.

What it finds: pairs of adapters whose RDMA write bandwidth is below half of the port's rate or of the median of the
rail, located to a host, to what several hosts share, or to the pair.

Why it happens: a cable that negotiated fewer lanes, symbol errors and retransmissions, a PCIe link that is too narrow,
a congested or badly routed uplink, RoCE without flow control.

How it decides: perftest's ib_write_bw runs in rounds, each adapter with one partner at a time and both ways at once;
what looks slow is measured again with adapters that are known to be fast. `--thorough` measures every pair.

Example: `mlx5_3: 97.1 Gb/s where 391.2 Gb/s is usual, node6: with every host it was tested with`

Fix: look at the port's rate and counters (ibstat, perfquery), its cable, and the PCIe width of the adapter.

Limits: needs perftest on the hosts and `--full`. Adapters of the same name count as one rail.
"""

from __future__ import annotations

from statistics import median

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.inspection import Inspection
from whichrank.rules.preflight_findings import found, located, measured, of_subject, with_device

CODE = "PREF112"
CAUSE = "slow-network"
FIX = (
    "Compare rate, width and error counters of that port with its siblings: ibstat DEV, perfquery -x, mlxlink -d DEV.",
    "Reseat or replace its cable; check the PCIe width of the adapter.",
)


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    if not inspection.rdma_slow:
        return NotEvaluated("RDMA bandwidth between two hosts (--full measures it where perftest is installed)")
    findings = []
    for device, blame in inspection.rdma_slow.items():
        rates = [r for r in inspection.rdma_rates if r.device == device and r.gbits is not None]
        usual = median([r.gbits or 0.0 for r in rates]) if rates else 0.0
        for subject, words in located(blame):
            own = [r for r in of_subject(rates, subject) if (r.gbits or 0.0) < usual or not usual]
            if not own:
                continue  # nothing got through: another rule tells
            least = min(r.gbits or 0.0 for r in own)
            port = f", the port has {own[0].port_gbits:g} Gb/s" if own[0].port_gbits else ""
            refs = [measured("rdma", f"{r.a} → {r.b} by {device}: {r.gbits:.1f} Gb/s", r.a) for r in own[:4]]
            message = f"Slow RDMA: {device}: {least:.1f} Gb/s where {usual:.1f} Gb/s is usual{port}, {words}."
            findings.append(found(CODE, CAUSE, "slow", with_device(subject, device), message, refs, FIX))
    return findings
