"""A collective is slower than in an earlier run.

What it finds: results that took longer than the same collective at the same size and number of ranks before.

Why it happens: anything that changed since: a driver, a cable, a setting, a neighbour.

How it decides: a result must be 15 % slower, and by more than three times the spread of both runs; at least two sizes
of a collective must say so.

Example: `all_reduce: 31 % slower than before at 3 of 4 sizes`

Fix: whichrank compare on bundles of both runs; whichrank preflight.

Limits: the spread of one run does not show what changes from day to day: keep more than one.
"""

from __future__ import annotations

from statistics import median

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.records.bench import BenchResult, BenchRun

CODE = "BNCH104"
CAUSE = "slow-network"
FIX = ("See what changed since: settings, driver, cables, neighbours (whichrank preflight).",)
_SLOWER = 0.15


def judge(run: BenchRun) -> list[Finding] | NotEvaluated:
    before = {result.key: result for result in run.baseline}
    pairs = [(before[r.key], r) for r in run.results if r.key in before]
    if not pairs:
        return NotEvaluated("an earlier run with the same collectives, sizes and ranks (--compare)")
    findings = []
    for name in dict.fromkeys(new.collective for _, new in pairs):
        own = [(old, new) for old, new in pairs if new.collective == name]
        worse = [(old, new) for old, new in own if _worse(old, new)]
        if len(worse) >= min(2, len(own)):
            lost = median(new.time_us / old.time_us - 1 for old, new in worse)
            refs = tuple(
                Ref(run.origin, f"{name} {new.bytes} bytes", f"{new.time_us:.1f} us, before {old.time_us:.1f} us")
                for old, new in worse[:4]
            )
            message = f"{name}: takes {lost:.0%} longer than before at {len(worse)} of {len(own)} sizes."
            hosts = Subject(hosts=tuple(dict.fromkeys(run.hosts)))
            findings.append(
                Finding(CODE, CAUSE, "slow", "warning", Grade.SUPPORTS, hosts, message, refs, FIX, kind="timing")
            )
    return findings


def _worse(old: BenchResult, new: BenchResult) -> bool:
    change = new.time_us / old.time_us - 1 if old.time_us else 0.0
    return change > max(_SLOWER, 3 * ((old.spread or 0.0) + (new.spread or 0.0)))
