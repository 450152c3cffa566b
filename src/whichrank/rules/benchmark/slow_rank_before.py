"""A rank is slow before the job has begun.

What it finds: ranks whose own compute, memory copies or copies to the GPU take longer than those of the others.

Why it happens: a throttled or capped GPU, a degraded PCIe link, a CPU without enough time, a busy neighbour.

How it decides: by each rank's own work, over several rounds. A rank must be 15 % slower than the median of all ranks,
by more than five times the usual spread between ranks, in most rounds. The rank that everybody waits for waits least
itself in the barrier: that is told as support, and a long barrier is never a sign of a slow rank.

Example: `rank 5: compute takes 1.4 times as long as on the other ranks; it waits least`

Fix: whichrank preflight on that host (clocks, power, PCIe, CPU quota); leave the host out.

Limits: short disturbances are averaged away; ranks of different kinds of GPUs differ by nature.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.records.bench import BenchRun

CODE = "BNCH105"
CAUSE = "straggler"
FIX = ("whichrank preflight on that host looks for throttling, power caps, PCIe lanes and CPU quotas.",)
_SLOWER, _SPREADS, _MOST_ROUNDS = 1.15, 5.0, 0.75
_WORDS = {"compute": "compute", "memory": "memory copies", "host_to_device": "copies to the GPU"}


def judge(run: BenchRun) -> list[Finding] | NotEvaluated:
    works = {name: run.stragglers[name] for name in _WORDS if len(run.stragglers.get(name, ())) > 2}
    if not works:
        return NotEvaluated("the times of at least three ranks (--stragglers)")
    findings = []
    for name, ranks in works.items():
        for rank in slow_ranks(ranks):
            middle = median(median(rounds) for rounds in ranks)
            times = median(ranks[rank]) / middle
            waits = run.stragglers.get("wait", ())
            least = bool(waits) and median(waits[rank]) == min(median(w) for w in waits)
            message = f"rank {rank}: {_WORDS[name]} takes {times:.2f} times as long as on the other ranks"
            message += "; it waits least in the barrier." if least else "."
            ref = Ref(
                run.origin,
                f"stragglers {name}",
                f"rank {rank}: {median(ranks[rank]) * 1e3:.2f} ms, median {middle * 1e3:.2f} ms",
                rank,
            )
            host = tuple(run.hosts[rank : rank + 1])
            findings.append(
                Finding(
                    CODE,
                    CAUSE,
                    "slow",
                    "warning",
                    Grade.SUPPORTS,
                    Subject(ranks=(rank,), hosts=host),
                    message,
                    (ref,),
                    FIX,
                    kind="timing",
                )
            )
    return findings


def slow_ranks(ranks: Sequence[Sequence[float]]) -> list[int]:
    """By the median of each rank against the median of all, with the spread between ranks as the noise."""
    medians = [median(rounds) for rounds in ranks]
    middle = median(medians)
    noise = median(abs(m - middle) for m in medians)
    found = []
    for rank, rounds in enumerate(ranks):
        slower = medians[rank] > max(_SLOWER * middle, middle + _SPREADS * noise)
        steady = sum(r > _SLOWER * middle for r in rounds) >= _MOST_ROUNDS * len(rounds)
        if slower and steady:
            found.append(rank)
    return found
