"""all_reduce runs without NVLS: the switches could reduce, but don't.

What it finds: an NVSwitch node (H100, H200, B200) whose all_reduce of large messages sits where the ring algorithm
ends.

Why it happens: NCCL_NVLS_ENABLE=0 or NCCL_ALGO in the environment, a fabric manager that is not ready, no multicast in
the container or virtual machine, IMEX missing.

How it decides: with NVLS an H100 or H200 node of 8 reaches 440-480 GB/s of bus bandwidth, with rings about 365. A
result within 8 % of the ring's, at 1 GiB or more and enough ranks that NVLS would be chosen, is the signature.

Example: `365 GB/s on an H100 node: NVLS is off`

Fix: unset NCCL_NVLS_ENABLE and NCCL_ALGO; check the fabric state (nvidia-smi -q, whichrank preflight).

Limits: all_gather and reduce_scatter don't show it; few GPUs of a node don't use NVLS.
"""

from __future__ import annotations

from whichrank.facts.hardware.bandwidth import family, nvls
from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.records.bench import BenchRun

CODE = "BNCH102"
CAUSE = "wrong-algorithm"
FIX = (
    "Unset NCCL_NVLS_ENABLE and NCCL_ALGO, or see who sets them (whichrank env lint).",
    "Check that the fabric is ready: nvidia-smi -q shows Fabric State Completed.",
)
_LARGE = 1 << 30
_NEAR = 0.08


def judge(run: BenchRun) -> list[Finding] | NotEvaluated:
    fact = nvls().get(family(run.device) or "")
    fitting = [
        r for r in run.results
        if r.collective == "all_reduce" and r.bytes >= _LARGE and r.busbw_gbs and fact and r.ranks >= fact.least_ranks
    ]  # fmt: skip
    if fact is None or not fitting or run.nodes > 1:
        return NotEvaluated("all_reduce of 1 GiB or more on one node with NVSwitch")
    best = max(fitting, key=lambda r: r.busbw_gbs or 0)
    speed = best.busbw_gbs or 0.0
    if not fact.ring * (1 - _NEAR) <= speed <= min(fact.ring * (1 + _NEAR), fact.low * 0.97):
        return []
    words = f"{speed:.0f} GB/s on an {fact.gpu} node: NVLS is off (with it {fact.low:.0f}-{fact.high:.0f} GB/s)"
    ref = Ref(run.origin, f"all_reduce {best.bytes} bytes", f"busbw {speed:.2f} GB/s")
    told = [
        Ref(run.origin, f"setting {k}", f"{k}={v}")
        for k, v in run.settings.items()
        if k in ("NCCL_NVLS_ENABLE", "NCCL_ALGO")
    ]
    return [
        Finding(
            CODE,
            CAUSE,
            "slow",
            "warning",
            Grade.SUPPORTS,
            Subject(hosts=tuple(dict.fromkeys(run.hosts))),
            f"{words}.",
            (ref, *told),
            FIX,
        )
    ]
