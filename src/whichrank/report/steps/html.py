"""`trace` as one page: the map of ranks over time, where the time goes, who is late, what a fix returns."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from statistics import median
from typing import TypeVar

from whichrank.model.step_report import Advice, RankDrawing, RankShares, StepReport, Straggler
from whichrank.report._coverage import lines
from whichrank.report.html.page import filled, page, section, table, text
from whichrank.report.html.rank_map import SCRIPT, Row, State, rank_map
from whichrank.report.steps._outline import Table, duration, outline

NAME = "html"
Ranked = TypeVar("Ranked", RankDrawing, RankShares)
COLOURS = (
    "--compute",
    "--overlap",
    "--exposed",
    "--memory",
    "--loader",
    "--checkpoint",
    "--collector",
    "--sync",
    "--host",
    "--other",
    "--wait",
)
PARTS = (
    ("compute_pct", "compute", "--compute"), ("moving_pct", "exposed communication", "--exposed"),
    ("waiting_pct", "waiting for another rank", "--wait"), ("memory_pct", "memory copies", "--memory"),
)  # fmt: skip
IDLE = ("data_loader", "checkpoint", "garbage_collector", "synchronisation", "host", "other")
MOST_BARS = 512
MANY = 40
"""Beyond this many ranks the late ones come first, so that they are seen without scrolling."""
TABLES = {"collectives": "Collectives", "ddp buckets": "DDP buckets", "other bucket sizes": "Other bucket sizes"}


def render(report: StepReport) -> Iterator[str]:
    """The document."""
    told = outline(report)
    yield from page(told.headline, _parts(report), [SCRIPT] if report.drawings else [])


def _parts(report: StepReport) -> Iterator[str]:
    told = outline(report)
    yield '<header><p class="kicker">Where the step time goes</p>'
    yield f'<h1>{text(told.headline)}</h1><p class="label">{text(told.label)}</p></header>\n'
    if report.ranks:
        yield _cards(report)
    if report.drawings:
        late = {one.rank for one in report.stragglers}
        rows = [
            Row(d.label, d.at_us, d.state, d.steps_us, "late" if d.rank in late and d.rank is not None else "")
            for d in _late_first(report.drawings, late)
        ]
        states = [State(name, COLOURS[i]) for i, name in enumerate(report.states)]
        hint = (
            "One row per rank, on one clock that the collectives align. Wheel zooms, drag moves, "
            "double click shows everything; click the legend to hide a state."
        )
        yield section("Ranks over time", rank_map(rows, states), hint=hint)
    if report.stragglers:
        yield section("Who is late", *(_late(one) for one in report.stragglers))
    if report.advice:
        most = max((a.gain_us_per_step or 0.0 for a in report.advice), default=0.0)
        hint = "Gains by replaying the recorded steps with that one change; they do not add up."
        yield section("What a fix returns", *(_advice(one, most, report.step_us) for one in report.advice), hint=hint)
    if report.ranks:
        yield section("Where the time goes", _legend(), _bars(report.ranks, {one.rank for one in report.stragglers}))
    for part in told.parts:
        if part.title in TABLES and part.table is not None:
            note = f'<p class="hint">{text(part.table.note)}</p>' if part.table.note else ""
            yield section(TABLES[part.title], _table(part.table), note)
        if part.title in ("findings", "notes"):
            items = "".join(f"<li>{text(words)}</li>" for words, _ in part.points)
            yield section(part.title.capitalize(), f"<ul>{items}</ul>")
    looked = "".join(f"<li>{text(line)}</li>" for line in lines(report.coverage))
    yield f"<section><details><summary>What was looked at</summary><ul>{looked}</ul></details></section>\n"


def _table(told: Table) -> str:
    headings, rows = filled(told.headings, told.rows)
    return table(headings, rows, [i for i, heading in enumerate(headings) if not i or heading == "group"])


def _late_first(ranks: Sequence[Ranked], late: Container[int | None]) -> list[Ranked]:
    if len(ranks) <= MANY:
        return list(ranks)
    return sorted(ranks, key=lambda one: one.rank is None or one.rank not in late)


def _cards(report: StepReport) -> str:
    def middle(key: str) -> str:
        values = [v for one in report.ranks if (v := getattr(one, key)) is not None]
        return f"{median(values):.0f} %" if values else "–"

    cost = sum(one.cost_us_per_step or 0.0 for one in report.stragglers)
    cards = [
        (duration(report.step_us), "a step", ""),
        (middle("compute_pct"), "compute", ""),
        (middle("exposed_pct"), "exposed communication", ""),
        (middle("waiting_pct"), "waiting for another rank", "")
        if len(report.ranks) > 1
        else (middle("overlap_pct"), "of communication hidden", ""),
        (middle("idle_pct"), "idle", ""),
        (duration(cost) if report.stragglers else "none", "lost to late ranks per step", "warn" if cost else ""),
    ]
    shown = "".join(
        f'<div class="card {css}"><b>{text(value)}</b><span>{text(name)}</span></div>' for value, name, css in cards
    )
    return f'<div class="cards">{shown}</div>\n'


def _late(one: Straggler) -> str:
    cost = "cost unknown" if one.cost_us_per_step is None else f"costs {duration(one.cost_us_per_step)} per step"
    if one.cost_us_per_step is not None and one.cost_us_per_step < 1:
        cost = "hidden: costs nothing"
    host = f" on {one.host}" if one.host else ""
    return (
        f'<div class="item"><div class="gain">rank {one.rank}{text(host)}'
        f"<small>{one.steps} of {one.of_steps} steps</small></div>"
        f"<div><p><strong>{text(duration(one.late_us_per_step))} late per step</strong>, {text(cost)}</p>"
        f'<p class="why">{text(one.doing)}</p></div></div>'
    )


def _advice(one: Advice, most: float, step_us: float | None) -> str:
    gain, share, width = "gain unknown", "", 0.0
    if one.gain_range_us_per_step is not None:
        gain = " to ".join(map(duration, one.gain_range_us_per_step))
    if one.gain_us_per_step is not None:
        share = f"{100 * one.gain_us_per_step / step_us:.0f} % of it · " if step_us else ""
        gain = f"{duration(one.gain_us_per_step)} per step"
        width = 100 * one.gain_us_per_step / most if most else 0.0
    setting = f"<p><code>{text(one.setting)}</code></p>" if one.setting else ""
    why = f'<p class="why">{text(one.why)}</p>' if one.why else ""
    return (
        f'<div class="item"><div class="gain">{text(gain)}<small>{share}{100 * one.confidence:.0f} % sure</small>'
        f'<div class="meter"><i style="width:{width:.1f}%"></i></div></div>'
        f"<div><p>{text(one.what)}</p>{setting}{why}</div></div>"
    )


def _legend() -> str:
    names = [
        *((name, colour) for _, name, colour in PARTS),
        *((f"idle: {key.replace('_', ' ')}", COLOURS[4 + i]) for i, key in enumerate(IDLE)),
    ]
    spans = "".join(f'<span><i style="background:var({colour})"></i>{text(name)}</span>' for name, colour in names)
    return f'<div class="legend" style="margin-bottom:10px">{spans}</div>'


def _part(one: RankShares, key: str) -> float:
    if key == "moving_pct":  # what is exposed without being a wait for others
        return max(0.0, (one.exposed_pct or 0.0) - (one.waiting_pct or 0.0))
    return getattr(one, key) or 0.0


def _bars(ranks: tuple[RankShares, ...], late: set[int]) -> str:
    rows = []
    for one in _late_first(ranks, late)[:MOST_BARS]:
        pieces = [(_part(one, key), colour, name) for key, name, colour in PARTS]
        pieces += [
            (one.idle_why.get(key, 0.0), COLOURS[4 + i], f"idle: {key.replace('_', ' ')}") for i, key in enumerate(IDLE)
        ]
        bar = "".join(
            f'<i style="width:{value:.2f}%;background:var({colour})" title="{text(name)} {value:.1f} %"></i>'
            for value, colour, name in pieces
            if value > 0.05
        )
        name = f"rank {one.rank}" if one.rank is not None else one.file.rsplit("/", 1)[-1]
        css = ' class="late"' if one.rank in late and one.rank is not None else ""
        rows.append(
            f'<span{css}>{text(name)}</span><div class="bar">{bar}</div>'
            f'<span class="end">{text(duration(one.step_us))}</span>'
        )
    left = f'<p class="hint">{len(ranks) - MOST_BARS} more ranks (in the JSON)</p>' if len(ranks) > MOST_BARS else ""
    return f'<div class="bars">{"".join(rows)}</div>{left}'
