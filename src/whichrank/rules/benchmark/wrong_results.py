"""A collective delivers wrong data.

What it finds: results of the benchmark, or of nccl-tests, that are not what they must be.

Why it happens: peer-to-peer copies that the platform breaks (ACS, IOMMU, drivers), failing GPU memory, a defect of
the library.

How it decides: every collective is run on known whole numbers, whose sums are exact, and compared element by element;
nccl-tests counts wrong elements itself.

Example: `all_reduce of 1048576 bytes: wrong elements`

Fix: run again with NCCL_P2P_DISABLE=1: if that helps, the way between the GPUs is at fault (ACS, IOMMU).

Limits: which GPU is to blame is not told by a collective; test pairs.
"""

from __future__ import annotations

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.records.bench import BenchRun

CODE = "BNCH101"
CAUSE = "p2p-silent-corruption"
FIX = (
    "Run again with NCCL_P2P_DISABLE=1: if the results are right then, look at ACS and IOMMU (whichrank preflight).",
    "Don't train on this machine before it is found.",
)


def judge(run: BenchRun) -> list[Finding] | NotEvaluated:
    checked = [result for result in run.results if result.correct is not None]
    if not checked:
        return NotEvaluated("results that were checked")
    wrong = [result for result in checked if not result.correct]
    if not wrong:
        return []
    refs = tuple(Ref(run.origin, f"{r.collective} {r.bytes} bytes", "wrong elements") for r in wrong[:4])
    names = ", ".join(dict.fromkeys(r.collective for r in wrong))
    message = f"{names} delivered wrong data ({len(wrong)} of {len(checked)} results)."
    cause = CAUSE if run.backend != "gloo" else "unknown"
    return [
        Finding(
            CODE,
            cause,
            "corruption",
            "error",
            Grade.PROVES,
            Subject(hosts=tuple(dict.fromkeys(run.hosts))),
            message,
            refs,
            FIX,
        )
    ]
