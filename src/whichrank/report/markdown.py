"""Markdown for a ticket: the answer and the proof in view, the coverage folded away."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.model.verdict import Diagnosis
from whichrank.report._outline import Point, Section, outline
from whichrank.report._words import safe

NAME = "markdown"

# What Markdown or a tracker would act on; "_" inside a word (all_reduce) is no markup.
_MARKUP = re.compile(r"[\\`*\[\]|~#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"})


def render(diagnosis: Diagnosis) -> Iterator[str]:
    """The report as GitHub-flavoured Markdown."""
    told = outline(diagnosis)
    yield f"## {escaped(told.sentence)}\n\n{escaped(told.label)}\n"
    for section in told.sections:
        yield from _folded(section) if section.folded else _open(section)


def escaped(text: str) -> str:
    """Text that is shown as it is: no markup, no HTML, no mention of a person."""
    return _MARKUP.sub(lambda match: "\\" + match.group(), safe(text)).translate(_ENTITIES)


def _open(section: Section) -> Iterator[str]:
    yield f"\n### {section.title.capitalize()}\n\n"
    for number, point in enumerate(section.points, start=1):
        yield from _point(point, f"{number}. " if section.numbered else "- ", "")


def _folded(section: Section) -> Iterator[str]:
    yield f"\n<details>\n<summary>{section.title.capitalize()}</summary>\n\n"
    for point in section.points:
        yield from _point(point, "- ", "")
    yield "\n</details>\n"


def _point(point: Point, mark: str, indent: str) -> Iterator[str]:
    yield f"{indent}{mark}{escaped(point.text)}\n"
    inside = indent + " " * len(mark)
    for detail in point.details:
        yield f"{inside}- {escaped(detail)}\n"
    if point.verbatim:
        lines = [safe(line) for line in point.verbatim]
        fence = "`" * max(3, 1 + max(len(run) for run in re.findall("`*", "\n".join(lines))))
        yield "".join(f"{inside}{line}\n" for line in (fence + "text", *lines, fence))
    for inner in point.inner:
        yield from _point(inner, "- ", inside)
