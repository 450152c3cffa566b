"""The benchmark did not reach its end.

What it finds: a collective that hangs, or ranks that fail, while `whichrank bench` runs.

Why it happens: whatever makes a job hang or crash does the same to a benchmark: a link that drops packets, a wrong
interface, a driver that is stuck. It is the cheapest place to see it.

How it decides: ranks that say nothing for two minutes, that end with an error, or that need longer than `--limit`, are
ended; the collective and the size at which they were are named. A collective that the backend itself gives up counts
too. What was measured before counts.

Example: `stuck in all_to_all of 16777216 bytes: no answer for 120 s`

Fix: whichrank preflight finds most causes; else run the same collective under `whichrank run -- torchrun … -m whichrank
bench`, which takes the stacks of all ranks.

Limits: which rank is at fault is not told here.
"""

from __future__ import annotations

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.records.bench import BenchRun

CODE = "BNCH106"
CAUSE = "unknown"
FIX = (
    "Look at the hosts and links: whichrank preflight --full.",
    "See where the ranks wait: whichrank run -- torchrun --nproc-per-node N -m whichrank bench --collective NAME",
)


def judge(run: BenchRun) -> list[Finding] | NotEvaluated:
    if not run.results and not run.stopped:
        return NotEvaluated("results of a run")
    late = [f"{name}: {why}" for name, why in run.failures.items() if "timed out" in why.lower()]
    stopped = run.stopped or "; ".join(late)
    if not stopped:
        return []
    hosts = Subject(hosts=tuple(dict.fromkeys(run.hosts)))
    message = f"The benchmark did not finish: {stopped[:400]}."
    refs = (Ref(run.origin, "the ranks", stopped[:400]),)
    return [Finding(CODE, CAUSE, "hang", "error", Grade.PROVES, hosts, message, refs, FIX, kind="host")]
