"""A collective is slower than on other machines of this kind.

What it finds: large messages whose bus bandwidth is below 80 % of what the same machine reached elsewhere.

Why it happens: a degraded link, a wrong algorithm or setting, GPUs that talk through host memory, a busy machine.

How it decides: results at 256 MiB and more are compared with measured rows for the same GPU, number of nodes and
ranks, and operation. Smaller messages measure latency and differ widely.

Example: `all_reduce of 1 GiB: 231 GB/s, 464 GB/s are usual on an H200 node`

Fix: whichrank preflight for links and throttling; NCCL_DEBUG=INFO shows which paths are taken; --sweep tries settings.

Limits: fabrics differ: between nodes the rows are examples. Machines without a row are not judged.
"""

from __future__ import annotations

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.records.bench import BenchRun

CODE = "BNCH103"
CAUSE = "slow-network"
FIX = (
    "whichrank preflight looks for degraded links, throttling and missing peer-to-peer.",
    "NCCL_DEBUG=INFO shows which paths and algorithms NCCL takes; whichrank bench --sweep tries others.",
)
_LARGE = 256 << 20
_SHARE = 0.8


def judge(run: BenchRun) -> list[Finding] | NotEvaluated:
    known = [r for r in run.results if r.expected_gbs and r.busbw_gbs and r.bytes >= _LARGE]
    if not known:
        return NotEvaluated("a measured machine of this kind, and messages of 256 MiB or more")
    findings = []
    for name in dict.fromkeys(r.collective for r in known):
        best = max((r for r in known if r.collective == name), key=lambda r: (r.busbw_gbs or 0) / (r.expected_gbs or 1))
        if (best.busbw_gbs or 0) < _SHARE * (best.expected_gbs or 0):
            words = f"{best.busbw_gbs:.1f} GB/s, {best.expected_gbs:.1f} GB/s are usual on such a machine"
            refs = (Ref(run.origin, f"{name} {best.bytes} bytes", f"busbw {best.busbw_gbs:.2f} GB/s"),
                    Ref("facts", best.source, f"busbw {best.expected_gbs:.2f} GB/s"))  # fmt: skip
            hosts = Subject(hosts=tuple(dict.fromkeys(run.hosts)))
            findings.append(
                Finding(
                    CODE, CAUSE, "slow", "warning", Grade.SUPPORTS, hosts, f"{name}: {words}.", refs, FIX, kind="timing"
                )
            )
    return findings
