"""The merged stacks as one page."""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.model.views import StackReport
from whichrank.report._stacks import heading
from whichrank.report._words import shortened
from whichrank.report.html.page import page, section, table
from whichrank.report.html.stack_tree import stack_tree

NAME = "html"
MISSING = 200


def render(report: StackReport) -> Iterator[str]:
    """The document."""
    title = heading(report)
    yield from page(title, _parts(report, title), ["diagnosis.js"], ["style.css", "diagnosis.css"])


def _parts(report: StackReport, title: str) -> Iterator[str]:
    yield f'<header><p class="kicker">whichrank stacks</p><h1>{title}</h1></header>\n'
    hint = "Frames that the same ranks share appear once, outermost first; a fork is where ranks part."
    yield section("Merged stacks", stack_tree(report.tree), hint=hint)
    if report.missing:
        rows = [
            [
                "–" if one.rank is None else str(one.rank),
                "–" if one.pid is None else str(one.pid),
                shortened(one.why, 300),
            ]
            for one in report.missing[:MISSING]
        ]
        yield section("No stack of", table(["rank", "pid", "why"], rows, range(3)))
