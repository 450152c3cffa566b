"""A host computes slower than the others: a straggler before the job has begun.

What it finds: hosts that take far longer than the others for the same work.

Why it happens: a CPU quota, a CPU at a low clock, another job on the host, failing memory.

How it decides: the same work on all hosts at once; those that are slow do it again, and some of the others with them,
so that a passing disturbance is not blamed. It must be 1.5 times the time of the others both times. How often the
control group was throttled meanwhile tells a quota from a slow CPU.

Example: `node4 needs 5.1 times as long as the others, and its control group was throttled 31 times`

Fix: raise the quota (cpu.max, resources.limits.cpu); look at `whichrank preflight` of that host for what else runs.

Limits: the work is arithmetic on one core; GPUs are compared by `whichrank bench --stragglers`.
"""

from __future__ import annotations

from statistics import median

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.inspection import Inspection
from whichrank.rules.preflight_findings import found, hosts, measured

CODE = "PREF109"
CAUSE = "straggler"
FIX = ("Raise the CPU quota of its control group, or see what else runs on that host.",)
FACTOR = 1.5
"""Own threshold: hosts of one kind differ by a few percent; a quota or a busy neighbour makes it more."""


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    together = {p.host: p for p in inspection.paces if not p.alone}
    again = {p.host: p for p in inspection.paces if p.alone}
    if len(together) < 3:
        return NotEvaluated("the same work on at least three hosts (--full measures it)")
    usual = median(p.seconds for p in together.values())
    suspects = [host for host, p in together.items() if p.seconds > FACTOR * usual and host in again]
    others = [p.seconds for host, p in again.items() if host not in suspects]
    if not others:
        return []
    reference = median(others)
    findings = []
    for host in suspects:
        pace = again[host]
        times = pace.seconds / reference
        if times <= FACTOR:
            continue
        throttled = f", and its control group was throttled {pace.throttled} times" if pace.throttled else ""
        message = f"{host} needs {times:.1f} times as long as the others for the same work{throttled}."
        words = f"{host}: {pace.seconds:.3f} s (CPU {pace.cpu_seconds:.3f} s), the others {reference:.3f} s"
        refs = [measured("work", words, host)]
        findings.append(found(CODE, CAUSE, "slow", hosts(host), message, refs, FIX, confidence=0.85))
    return findings
