"""What `trace` says to people and in which order; text, Markdown and HTML put it into their form."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from whichrank.model.step_report import Advice, Bucket, BucketSize, CollectiveShare, RankShares, StepReport, Straggler
from whichrank.report._coverage import lines
from whichrank.report._words import counted

MANY = 16
"""Beyond this many ranks a table shows the extremes and the median."""


class Table(Struct, frozen=True):
    """Headings and rows; the first column is text."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


class Part(Struct, frozen=True):
    """One section: a table, points, or both. A point is a text and details below it."""

    title: str
    table: Table | None = None
    points: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Outline(Struct, frozen=True):
    headline: str
    label: str
    parts: tuple[Part, ...]


def outline(report: StepReport) -> Outline:
    """The answer first, then where the time goes, who is late, what a fix returns, and what was looked at."""
    if not report.ranks:
        looked = Part("coverage", points=tuple((line, ()) for line in lines(report.coverage)))
        return Outline("No profile could be read.", "", (looked,))
    parts = [Part("where the time goes", _ranks(report.ranks))]
    if report.stragglers:
        parts.append(Part("who is late", points=tuple(_straggler(one) for one in report.stragglers)))
    if report.advice:
        parts.append(Part("what a fix returns", points=tuple(_advice(one, report.step_us) for one in report.advice)))
    if report.collectives:
        parts.append(Part("collectives", _collectives(report.collectives)))
    if report.buckets:
        parts.append(Part("ddp buckets", _buckets(report.buckets)))
    if report.bucket_sizes:
        parts.append(Part("other bucket sizes", _bucket_sizes(report.bucket_sizes)))
    if report.findings:
        parts.append(Part("findings", points=tuple(_found(report))))
    if report.notes:
        parts.append(Part("notes", points=tuple((note, ()) for note in report.notes)))
    parts.append(Part("coverage", points=tuple((line, ()) for line in lines(report.coverage))))
    return Outline(headline(report), _label(report), tuple(parts))


def headline(report: StepReport) -> str:
    """One sentence: what matters most."""
    least = 0.01 * (report.step_us or 0.0)
    late = next((one for one in report.stragglers if (one.cost_us_per_step or 0.0) > least), None)
    if late is not None and late.cost_us_per_step:
        share = f" of {duration(report.step_us)}" if report.step_us else ""
        why = late.doing.partition(": ")[0].partition(" (kernel")[0].partition(" enumerate(")[0]
        return f"Rank {late.rank} is late and costs every step {duration(late.cost_us_per_step)}{share}: {why}."
    best = next((one for one in report.advice if one.gain_us_per_step), None)
    middle = {key: _middle(report.ranks, key) for key in ("compute_pct", "exposed_pct", "memory_pct", "idle_pct")}
    words = {
        "compute_pct": "compute", "exposed_pct": "exposed communication", "memory_pct": "memory copies",
        "idle_pct": "idle",
    }  # fmt: skip
    parts = ", ".join(
        f"{middle[k]:.0f} % {words[k]}" for k in sorted(middle, key=lambda k: -(middle[k] or 0)) if middle[k]
    )
    tail = f" Most to gain: {best.what}" if best is not None else ""
    if middle["idle_pct"] is None and parts:
        return f"At least {parts}; the profiles are not whole.{tail}"
    return f"The time goes to {parts}.{tail}" if parts else _collectives_alone(report)


def _collectives_alone(report: StepReport) -> str:
    """What can be said where nothing but collectives was recorded."""
    if report.stragglers:
        late = report.stragglers[0]
        often = "" if late.of_steps < 2 else " per step"
        return f"Rank {late.rank} comes {duration(late.late_us_per_step)}{often} after the others to their collectives."
    if report.matched:
        return f"No rank is clearly late, by {report.matched:,} collectives that the ranks have in common."
    return "The profile holds no work."


def _label(report: StepReport) -> str:
    steps = max(one.steps for one in report.ranks)
    parts = [f"step {duration(report.step_us)}"] if report.step_us else []
    parts += [counted(steps, "step")] if steps else []
    parts.append(
        counted(len(report.ranks), "rank")
        + (f" of {report.world}" if report.world and report.world != len(report.ranks) else "")
    )
    if report.matched:
        parts.append(f"{report.matched:,} collectives matched")
    offset = max((abs(one.clock_offset_us) for one in report.ranks), default=0.0)
    if len(report.ranks) > 1 and report.matched:
        parts.append(f"clocks within {duration(offset)}, aligned" if offset >= 1 else "one clock")
    return " · ".join(parts)


def _ranks(ranks: Sequence[RankShares]) -> Table:
    chosen, note = list(ranks), ""
    if len(ranks) > MANY:
        ordered = sorted(ranks, key=lambda one: -(one.compute_pct or 0))
        chosen = [*ordered[:3], *ordered[-3:]]
        note = f"the three ranks that compute most and least, and the median of all {len(ranks)}"
    rows = [_rank_row(one) for one in chosen]
    if len(ranks) > MANY:
        rows.append((
            "median", "", *(_percent(_middle(ranks, key)) for key in
            ("compute_pct", "exposed_pct", "memory_pct", "idle_pct", "overlap_pct", "waiting_pct")), "",
        ))  # fmt: skip
    headings = ("rank", "step", "compute", "exposed", "copies", "idle", "overlap", "waiting", "idle because of")
    return Table(headings, tuple(rows), note)


def _rank_row(one: RankShares) -> tuple[str, ...]:
    why = sorted(((v, k) for k, v in one.idle_why.items() if v >= 1), reverse=True)[:2]
    return (
        str(one.rank) if one.rank is not None else one.file.rsplit("/", 1)[-1],
        duration(one.step_us),
        _percent(one.compute_pct),
        _percent(one.exposed_pct),
        _percent(one.memory_pct),
        _percent(one.idle_pct),
        _percent(one.overlap_pct),
        _percent(one.waiting_pct),
        ", ".join(f"{k.replace('_', ' ')} {v:.0f} %" for v, k in why),
    )


def _straggler(one: Straggler) -> tuple[str, tuple[str, ...]]:
    often = "in every step" if one.steps >= one.of_steps else f"in {one.steps} of {one.of_steps} steps"
    if one.cost_us_per_step is None:
        cost = "what that costs could not be worked out"
    elif one.cost_us_per_step < 1:
        cost = "hidden behind communication: it costs nothing"
    else:
        cost = f"without it a step would be {duration(one.cost_us_per_step)} shorter"
    host = f" on {one.host}" if one.host else ""
    return f"rank {one.rank}{host}: {duration(one.late_us_per_step)} late per step, {often}; {cost}", (one.doing,)


def _advice(one: Advice, step_us: float | None) -> tuple[str, tuple[str, ...]]:
    gain = "gain not known"
    if one.gain_range_us_per_step is not None:
        low, high = map(duration, one.gain_range_us_per_step)
        gain += f", {low} to {high} per step"
    if one.gain_us_per_step is not None:
        share = f" ({100 * one.gain_us_per_step / step_us:.0f} %)" if step_us else ""
        gain = f"{duration(one.gain_us_per_step)} per step{share}"
    details = [f"set: {one.setting}"] if one.setting else []
    details += [f"why: {one.why}"] if one.why else []
    return f"{gain}, {100 * one.confidence:.0f} % sure: {one.what}", tuple(details)


def _collectives(found: Sequence[CollectiveShare]) -> Table:
    headings = ("operation", "group", "ranks", "size", "per step", "time", "waiting", "moving", "bus GB/s", "usual")
    rows = tuple(
        (
            f"{one.op} ({one.algorithm})" if one.algorithm else one.op, one.group or "–", str(one.ranks or "–"),
            size(one.bytes), f"{one.per_step:.3g}",
            duration(one.time_us), duration(one.waiting_us), duration(one.moving_us),
            f"{one.busbw_gbs:.3g}" if one.busbw_gbs else "–", f"{one.expected_gbs:.3g}" if one.expected_gbs else "–",
        )
        for one in found[:12]
    )  # fmt: skip
    left = len(found) - 12
    return Table(headings, rows, f"{left} more kinds (in the JSON)" if left > 0 else "")


def _buckets(found: Sequence[Bucket]) -> Table:
    """In the order in which they are reduced."""
    headings: tuple[str, ...] = ("bucket", "size", "type", "begins at", "takes")
    rows: list[tuple[str, ...]] = [
        (str(number), size(one.bytes), one.dtype or "–", duration(one.begins_us), duration(one.takes_us))
        for number, one in enumerate(found[:16])
    ]
    if any(one.parameters for one in found):
        headings = (*headings, "gradients of")
        rows = [(*row, _held(one)) for row, one in zip(rows, found, strict=False)]
    known = sum(one.bytes or 0 for one in found)
    total = f"{len(found)} buckets" + (f", {size(known)} of gradients" if known else "; record shapes for their sizes")
    return Table(headings, tuple(rows), total)


def _bucket_sizes(found: Sequence[BucketSize]) -> Table:
    """What a step would take with each."""
    rows = tuple(
        (f"{one.bucket_cap_mb:.3g}", str(one.buckets), duration(one.step_us), *map(duration, one.range_us))
        for one in found
    )
    return Table(("bucket_cap_mb", "buckets", "step", "at least", "at most"), rows)


def _held(one: Bucket) -> str:
    """The first and the last parameter of a bucket, and how many it holds; all of them are in the JSON."""
    names = [name if len(name) <= 32 else f"…{name[-31:]}" for name in one.parameters]
    if len(names) < 2:
        return names[0] if names else "–"
    return f"{names[0]} to {names[-1]} ({len(names)})"


def _found(report: StepReport) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (f"{f.code} {f.cause}, {100 * f.confidence:.0f} % sure: {f.message}", tuple(f"fix: {text}" for text in f.fix))
        for f in report.findings
    ]


def _middle(ranks: Sequence[RankShares], key: str) -> float | None:
    values = [value for one in ranks if (value := getattr(one, key)) is not None]
    return median(values) if values else None


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} %"


def duration(us: float | None) -> str:
    """Microseconds in the unit that fits."""
    if us is None:
        return "–"
    if abs(us) >= 1e6:
        return f"{us / 1e6:.2f} s"
    return f"{us / 1e3:.1f} ms" if abs(us) >= 1e3 else f"{us:.0f} µs"


def size(count: int | None) -> str:
    """Bytes in the unit that fits."""
    if count is None:
        return "–"
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} B"
