"""Text for a terminal, made to be read at 2:47 AM: the answer first, then the proof, then the rest."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from whichrank.model.verdict import Diagnosis
from whichrank.report._brief import brief
from whichrank.report._outline import Point, Section, outline
from whichrank.report._paint import Paint, plain
from whichrank.report._words import safe

NAME = "text"
WIDTH = 80
NOTHING = "Give it logs, dumps or stacks of the job; `whichrank collect` takes them from a running one."


def render(diagnosis: Diagnosis, *, width: int = WIDTH, paint: Paint = plain, verbose: bool = False) -> Iterator[str]:
    """The report, line by line; without a width and colours it is the same everywhere."""
    told = outline(diagnosis) if verbose else brief(diagnosis)
    role = diagnosis.verdict.category
    if role == "unknown" and not (diagnosis.coverage.sources or diagnosis.findings or diagnosis.ranks):
        yield from (f"{line}\n" for line in (told.sentence, NOTHING))
        return
    for line in _wrapped(told.sentence, "", "", width):
        yield paint(role, line) + "\n"
    for line in _wrapped(told.label, "", "", width):
        yield paint("quiet", line) + "\n"
    for section in told.sections:
        yield "\n" + paint("heading", section.title.upper()) + "\n"
        yield from _points(section, width, paint)


def _points(section: Section, width: int, paint: Paint) -> Iterator[str]:
    commands = section.title == "next commands"
    for number, point in enumerate(section.points, start=1):
        mark = f"{number}. " if section.numbered and len(section.points) > 1 else ""
        yield from _point(point, "  " + mark, " " * (2 + len(mark)), width, paint, commands=commands)


def _point(point: Point, first: str, rest: str, width: int, paint: Paint, *, commands: bool = False) -> Iterator[str]:
    if commands:  # The command first, unbroken, so that it can be copied.
        for line in point.verbatim:
            yield paint("command", f"{first}$ {safe(line)}") + "\n"
        yield from (f"{line}\n" for line in _wrapped(point.text, rest + "  ", rest + "  ", width))
        return
    hanging = rest if first.strip() else rest + "  "
    yield from (f"{line}\n" for line in _wrapped(point.text, first, hanging, width))
    for detail in point.details:
        yield from (f"{line}\n" for line in _wrapped(detail, rest + "  ", rest + "    ", width))
    for quote in point.verbatim:
        for line in _wrapped(quote, rest + "  > ", rest + "    ", width):
            yield paint("quiet", line) + "\n"
    for inner in point.inner:
        yield from _point(inner, rest + "  ", rest + "  ", width, paint)


def _wrapped(text: str, first: str, rest: str, width: int) -> list[str]:
    return textwrap.wrap(
        safe(text),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]
