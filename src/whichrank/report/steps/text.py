"""`trace` as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from whichrank.model.step_report import StepReport
from whichrank.report._paint import Paint, plain
from whichrank.report._words import safe
from whichrank.report.steps._outline import Table, outline

NAME = "text"
WIDTH = 100


def render(report: StepReport, *, width: int = WIDTH, paint: Paint = plain) -> Iterator[str]:
    """The report, line by line."""
    told = outline(report)
    role = "slow" if any(f.severity != "info" for f in report.findings) else "healthy" if report.ranks else "unknown"
    for line in _wrapped(told.headline, "", "", width):
        yield paint(role, line) + "\n"
    if told.label:
        yield paint("quiet", told.label) + "\n"
    for part in told.parts:
        yield "\n" + paint("heading", part.title.upper()) + "\n"
        if part.table is not None:
            yield from _table(part.table, paint)
        for text, details in part.points:
            yield from (f"{line}\n" for line in _wrapped(text, "  ", "    ", width))
            for detail in details:
                yield from (paint("quiet", line) + "\n" for line in _wrapped(detail, "    ", "      ", width))


def _table(table: Table, paint: Paint) -> Iterator[str]:
    rows = [tuple(safe(cell) for cell in row) for row in table.rows]
    last = len(table.headings) - 1
    widths = [max(len(row[i]) for row in (table.headings, *rows)) for i in range(len(table.headings))]
    words = [i == 0 or table.headings[i] in ("group", "idle because of") for i in range(len(table.headings))]

    def line(row: tuple[str, ...]) -> str:
        cells = [cell.ljust(w) if text else cell.rjust(w) for cell, w, text in zip(row, widths, words, strict=True)]
        return "  " + "  ".join(cells[: last + 1]).rstrip()

    yield paint("quiet", line(table.headings)) + "\n"
    for row in rows:
        yield line(row) + "\n"
    if table.note:
        yield paint("quiet", f"  ({table.note})") + "\n"


def _wrapped(text: str, first: str, rest: str, width: int) -> list[str]:
    options = {"initial_indent": first, "subsequent_indent": rest}
    return textwrap.wrap(safe(text), width, break_long_words=False, break_on_hyphens=False, **options) or [first]  # type: ignore[arg-type]
