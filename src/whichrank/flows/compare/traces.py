"""Two runs compared by their profiles: what became slower, where, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from whichrank.evidence.intake import Given, collect
from whichrank.flows.trace.analyse import reader_of, trace
from whichrank.model.difference import Difference
from whichrank.model.step_report import CollectiveShare, RankShares, StepReport

SHARES = (
    ("compute_pct", "compute"), ("exposed_pct", "exposed communication"), ("memory_pct", "memory copies"),
    ("idle_pct", "idle"),
)  # fmt: skip
LEAST = 0.02
"""Changes below this share of the step are noise."""


def holds(path: Path) -> bool:
    """Whether there is a profile below this path."""
    with collect([path]) as intake:
        return any(reader_of(item) is not None for item in intake.items)


def compare(a: Path, b: Path) -> tuple[list[Difference], list[str]]:
    """The differences between the profiles below two paths, and what was looked at."""
    one, other = trace([a]), trace([b])
    return differences(one, other), [f"profiles of {len(one.ranks)} and {len(other.ranks)} ranks"]


def compare_traces(a: Sequence[Given], b: Sequence[Given]) -> list[Difference]:
    """What differs between the profiles of two runs, the most suspicious first."""
    return differences(trace(a), trace(b))


def differences(a: StepReport, b: StepReport) -> list[Difference]:
    """The same for two reports."""
    if not a.ranks or not b.ranks:
        return []
    step_a, step_b = _step(a), _step(b)
    scale = max(abs(step_b - step_a), LEAST * max(step_a, step_b), 1e-9)
    found = [Difference("step time", _ms(step_a), _ms(step_b), 0.0, f"{_ratio(step_a, step_b)} of the first")]
    found += _shares(a.ranks, b.ranks, scale)
    found += _ranks(a, b, scale)
    found += _late(a, b, scale)
    found += _collectives(a.collectives, b.collectives, scale)
    kept = [d for d in found if d.what == "step time" or d.suspicion >= LEAST]
    return sorted(kept, key=lambda d: (d.what != "step time", -d.suspicion))


def _step(report: StepReport) -> float:
    return float(median(one.step_us for one in report.ranks))


def _shares(a: Sequence[RankShares], b: Sequence[RankShares], scale: float) -> list[Difference]:
    """Where the typical rank's time went."""
    found = []
    for key, name in SHARES:
        before, after = _time(a, key), _time(b, key)
        if before is not None and after is not None:
            why = f"{abs(after - before) / 1e3:.1f} ms per step {'more' if after > before else 'less'}"
            found.append(Difference(name, _ms(before), _ms(after), 0.9 * _suspicion(after - before, scale), why))
    reasons = {key for one in (*a, *b) for key in one.idle_why}
    for reason in sorted(reasons):
        before, after = (median(one.idle_why.get(reason, 0.0) * one.step_us / 100 for one in side) for side in (a, b))
        why = "idle for this reason"
        name = f"idle: {reason.replace('_', ' ')}"
        found.append(Difference(name, _ms(before), _ms(after), 0.9 * _suspicion(after - before, scale), why))
    return found


def _time(ranks: Sequence[RankShares], key: str) -> float | None:
    values = [share * one.step_us / 100 for one in ranks if (share := getattr(one, key)) is not None]
    return float(median(values)) if values else None


def _ranks(a: StepReport, b: StepReport, scale: float) -> list[Difference]:
    """A rank whose own computation changed and the others' did not."""
    before = {one.rank: one for one in a.ranks if one.rank is not None and one.compute_pct is not None}
    change = {
        one.rank: (one.compute_pct or 0) * one.step_us / 100
        - (before[one.rank].compute_pct or 0) * before[one.rank].step_us / 100
        for one in b.ranks
        if one.rank in before and one.compute_pct is not None
    }
    if len(change) < 3:
        return []
    typical = median(change.values())
    rank, most = max(change.items(), key=lambda item: item[1] - typical)
    more = most - typical
    if rank is None or more < scale / 2:
        return []
    old, new = before[rank], next(one for one in b.ranks if one.rank == rank)
    values = [(one.compute_pct or 0) * one.step_us / 100 for one in (old, new)]
    why = f"the others changed by {typical / 1e3:.1f} ms"
    return [Difference(f"compute of rank {rank}", _ms(values[0]), _ms(values[1]), 0.95 * _suspicion(more, scale), why)]


def _late(a: StepReport, b: StepReport, scale: float) -> list[Difference]:
    """Ranks that are late in one run only."""
    before = {one.rank: one for one in a.stragglers}
    found = []
    for one in b.stragglers:
        old = before.get(one.rank)
        was = old.late_us_per_step if old else 0.0
        cost = one.cost_us_per_step if one.cost_us_per_step is not None else one.late_us_per_step
        gone = (old.cost_us_per_step or 0.0) if old else 0.0
        name = f"lateness of rank {one.rank}"
        found.append(Difference(name, _ms(was), _ms(one.late_us_per_step), _suspicion(cost - gone, scale), one.doing))
    return found


def _takes(one: CollectiveShare) -> float:
    """Microseconds that one takes: moving data where that is known, else in all, else waiting for the last rank."""
    return next((t for t in (one.moving_us, one.time_us, one.waiting_us) if t is not None), 0.0)


def _collectives(a: Sequence[CollectiveShare], b: Sequence[CollectiveShare], scale: float) -> list[Difference]:
    """Kinds of collectives that move data slower, are more, or are new."""
    before = {(one.op, one.group, one.bytes): one for one in a}
    found = []
    for one in b:
        old = before.get((one.op, one.group, one.bytes))
        size = f" of {one.bytes:,} bytes" if one.bytes is not None else ""
        name = f"{one.op}{size}"
        now, was = _takes(one) * one.per_step, _takes(old) * old.per_step if old else 0.0
        why = "only in the second run" if old is None else f"{old.per_step:.3g} and {one.per_step:.3g} per step"
        found.append(Difference(name, _ms(was), _ms(now), 0.8 * _suspicion(now - was, scale), why))
    return found


def _suspicion(change_us: float, scale: float) -> float:
    """How much of the change in step time this much more time may explain."""
    return round(min(1.0, max(0.0, change_us / scale)), 3)


def _ms(us: float) -> str:
    return f"{us / 1e3:.2f} ms"


def _ratio(a: float, b: float) -> str:
    return f"{100 * b / a:.0f} %" if a else "–"
