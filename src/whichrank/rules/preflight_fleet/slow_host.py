"""A host computes slower than the others: a straggler before the job has begun.

What it finds: hosts that take far longer than the others for the same work.

Why it happens: a CPU quota, a CPU at a low clock, another job on the host, failing memory.

How it decides: the same work on all hosts at once; those that are slow do it again in turn with some of the others. A
host must take 1.5 times as long as the others both times, and it must be the host's doing: its control group was
throttled, the work took more CPU time, or even its fastest turn was slower than the slowest of the others. So a passing
disturbance is not blamed.

Example: `node4 needs 5.1 times as long as the others, and its control group was throttled 31 times`

Fix: raise the quota (cpu.max, resources.limits.cpu); look at `whichrank preflight` of that host for what else runs.

Limits: the work is arithmetic on one core; GPUs are compared by `whichrank bench --stragglers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.inspection import Inspection, Pace
from whichrank.rules.preflight_findings import found, hosts, measured

CODE = "PREF109"
CAUSE = "straggler"
FIX = ("Raise the CPU quota of its control group, or see what else runs on that host.",)
FACTOR = 1.5
"""Own threshold: hosts of one kind differ by a few percent; a quota or a busy neighbour makes it more."""
APART, AT_ONCE = 1.2, 3.0
"""By how much even its fastest turn must be slower than the slowest of the others; the same after a single turn."""


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    together = {p.host: p for p in inspection.paces if not p.alone}
    again: dict[str, list[Pace]] = {}
    for pace in inspection.paces:
        if pace.alone:
            again.setdefault(pace.host, []).append(pace)
    if len(together) < 3:
        return NotEvaluated("the same work on at least three hosts (--full measures it)")
    usual = median(p.seconds for p in together.values())
    suspects = [host for host, p in together.items() if p.seconds > FACTOR * usual and host in again]
    others = [pace for host, paces in again.items() if host not in suspects for pace in paces]
    if not others:
        return []
    findings = []
    for host in suspects:
        own, reference = again[host], median(p.seconds for p in others)
        seconds = median(p.seconds for p in own)
        if seconds <= FACTOR * reference or not _lasting(own, others):
            continue
        throttled = sum(p.throttled or 0 for p in own)
        why = f", and its control group was throttled {throttled} times" if throttled else ""
        message = f"{host} needs {seconds / reference:.1f} times as long as the others for the same work{why}."
        cpu = median(p.cpu_seconds for p in own)
        words = f"{host}: {seconds:.3f} s (CPU {cpu:.3f} s), the others {reference:.3f} s"
        refs = [measured("work", words, host)]
        findings.append(found(CODE, CAUSE, "slow", hosts(host), message, refs, FIX))
    return findings


def _lasting(own: Sequence[Pace], others: Sequence[Pace]) -> bool:
    """Whether it is the host, and not something that passes by: a quota, a slow CPU, or slower every single time."""
    if all(pace.throttled for pace in own):
        return True
    if min(p.cpu_seconds for p in own) > FACTOR * median(p.cpu_seconds for p in others):
        return True
    apart = APART if len(own) > 1 else AT_ONCE
    return min(p.seconds for p in own) > apart * max(p.seconds for p in others)
