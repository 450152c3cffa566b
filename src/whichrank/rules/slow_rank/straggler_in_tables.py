"""Timings by rank or host, as the job or a tool printed them, show who is late.

## What it finds
One rank, or the ranks of one host, that need more time for the same work, more time for their data, or give less per
second than the others.

## Why it happens
A slower GPU, a busy CPU, a slow data source or more work on these ranks. The others wait for them in communication.

## How it decides
For every quantity in a table or list by rank, the median of each rank is compared with the typical rank: at least 15 %
slower, and four times as far off as the others lie apart. Where nobody is, the last third of the measurements counts,
if each rank has five there and one needs half as long again: who became slow later. Who waits least in communication is
late: that supports it, and is enough to name a rank where nothing else was measured.

## Example
    forward-backward:
     rank 10: 1491.99
     rank 11: 2273.05

## Fix
Compare GPU clocks, CPU load and the data source of that rank with a neighbour's.

## Limits
Pipeline stages with more layers need more time by design.
"""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import measured
from whichrank.timeline.job_state.measured import Outlier

CODE = "SLOW112"
CAUSE = "straggler"
_DRASTIC = 3
"""Who needs this many times what the others need can make them time out."""
_TELLING = {"data": 0, "work": 0, "step": 1, "rate": 2, "wait": 3}


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.rank_values:
        return NotEvaluated("times or rates by rank")
    hosts = {rank: process.host for rank, process in case.people.by_rank.items() if process.host}
    found = measured.slow(case.rank_values, hosts)
    if not found:
        return []
    best = min(found, key=lambda o: (_TELLING[o.quantity], -abs(o.theirs - o.typical)))
    agreeing = [outlier for outlier in found if outlier.members == best.members]
    if best.quantity == "wait" and len(found) > len(agreeing):
        return []  # who waits least differs from place to place: nobody is steadily late
    if not measured.waits_less(case.rank_values, best.members):
        return []  # it has more to do, and the others don't wait for it
    return [_finding(case, best, agreeing)]


def _finding(case: Case, best: Outlier, agreeing: Sequence[Outlier]) -> Finding:
    ranks, on = measured.ranks_of(case, best.members), measured.hosts_of(case, best.members)
    whole = on and len(ranks) != 1
    stands = "stand" if len(ranks) > 1 and not whole else "stands"
    who = f"host {on[0]}" if whole else wording.culprits_text(case, ranks)
    kinds = {outlier.quantity for outlier in agreeing}
    plain = best.quantity in ("data", "work") or (best.quantity != "wait" and best.times > 2)
    plain = plain and not _waits_itself(case, best)
    cause = "input-bound" if best.quantity == "data" and not _explains_little(best, agreeing) else CAUSE
    waits = " and waits least for the others" if "wait" in kinds and best.quantity != "wait" else ""
    return Finding(
        code=CODE,
        cause=cause,
        category="slow",
        severity="error" if plain and _is_drastic(best) else "warning",
        grade=Grade.SUPPORTS if plain else Grade.HINTS,
        kind="timing",
        subject=Subject(ranks=ranks, hosts=on if whole else ()),
        message=f"{who[0].upper()}{who[1:]} {stands} out in {best.name}: {best.told()} the others{waits}.",
        evidence=tuple(ref for outlier in (best, *(o for o in agreeing if o is not best)) for ref in outlier.refs)[:6],
        fix=fix(cause),
    )


def _waits_itself(case: Case, late: Outlier) -> bool:
    """Whether it waits much longer for the others, or for the network, than what stands out takes it."""
    in_time = late.quantity in ("data", "work", "step")
    return in_time and measured.own_wait(case.rank_values, late.members) > _DRASTIC * abs(late.theirs - late.typical)


def _explains_little(late: Outlier, agreeing: Sequence[Outlier]) -> bool:
    """Whether the others wait for these much longer than what stands out takes them."""
    waited = [abs(o.theirs - o.typical) for o in agreeing if o.quantity == "wait"]
    return bool(waited) and max(waited) > _DRASTIC * abs(late.theirs - late.typical)


def _is_drastic(late: Outlier) -> bool:
    return late.quantity in ("data", "work", "step") and late.theirs >= _DRASTIC * late.typical
