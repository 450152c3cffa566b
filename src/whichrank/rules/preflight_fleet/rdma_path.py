"""TCP connects between two hosts, and RDMA between their adapters does not get through.

What it finds: adapters between which RDMA writes end with an error or never finish, while the TCP connection that
perftest needs for its start works.

Why it happens: another partition (P_Key) or subnet, a missing route in the fabric, a GID that the other side can't
reach, RoCE packets that a switch drops, rails that are not connected.

How it decides: by perftest's own words (completion with error, failed to modify QP to RTR), and by transfers that do
not end within their time limit; tested again with other partners, so that a host is told from a pair.

Example: `RDMA by mlx5_2 does not get through, node3: with every host it was tested with`

Fix: compare GID index and type, P_Key and subnet prefix of both ports; ask the fabric for a path (ibtracert, rping).

Limits: needs perftest on the hosts and `--full`.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.inspection import Inspection
from whichrank.rules.preflight_findings import found, located, measured, of_subject, with_device

CODE = "PREF113"
CAUSE = "ib-fabric-partition"
FIX = (
    "Compare GID index and type, P_Key and subnet prefix of both ports (show_gids, ibstat).",
    "On RoCE look for an ACL or a VLAN that drops UDP port 4791; on InfiniBand try ibtracert between the LIDs.",
)


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    if not inspection.rdma_slow:
        return NotEvaluated("RDMA between at least two hosts (--full tests it where perftest is installed)")
    findings = []
    for device, blame in inspection.rdma_slow.items():
        lost = [r for r in inspection.rdma_rates if r.device == device and r.unreached]
        for subject, words in located(blame):
            own = of_subject(lost, subject)
            if not own:
                continue
            refs = [measured("rdma", f"{r.a} → {r.b} by {device}: {r.why}", r.a) for r in own[:4]]
            message = f"RDMA by {device} does not get through, {words}."
            findings.append(found(CODE, CAUSE, "crash", with_device(subject, device), message, refs, FIX))
    return findings
