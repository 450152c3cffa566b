"""`trace` as Markdown, for a ticket."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.model.step_report import StepReport
from whichrank.report._words import safe
from whichrank.report.steps._outline import outline

NAME = "markdown"
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!~])")


def render(report: StepReport) -> Iterator[str]:
    """The report, line by line."""
    told = outline(report)
    yield f"# {_plain(told.headline)}\n"
    if told.label:
        yield f"\n{_plain(told.label)}\n"
    for part in told.parts:
        yield f"\n## {part.title.capitalize()}\n\n"
        if part.table is not None:
            yield "| " + " | ".join(part.table.headings) + " |\n"
            yield "|" + "---|" * len(part.table.headings) + "\n"
            for row in part.table.rows:
                yield "| " + " | ".join(_plain(cell) for cell in row) + " |\n"
            if part.table.note:
                yield f"\n{_plain(part.table.note)}\n"
        for text, details in part.points:
            yield f"- {_plain(text)}\n"
            for detail in details:
                yield f"  - {_plain(detail)}\n"


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", safe(text))
