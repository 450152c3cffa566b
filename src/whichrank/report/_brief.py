"""The same report in about 25 lines: headline, who, proof, what to do, next command. `--verbose` gives all of it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from whichrank.model.verdict import Diagnosis
from whichrank.report import _coverage
from whichrank.report._outline import CONSEQUENCE, SAID_ABOVE, Outline, Point, Section, outline
from whichrank.report._words import counted

QUOTES, ALSO, COMMANDS, STANDINGS = 2, 2, 2, 3
_NOTHING = Section("", [])


def brief(diagnosis: Diagnosis) -> Outline:
    """What is needed at first sight."""
    whole = outline(diagnosis)
    by_title = {section.title: section for section in whole.sections}
    sections = [
        Section("who", list(_who(diagnosis, by_title))),
        by_title.get("nothing readable of", _NOTHING),
        Section("proof", list(_proof(by_title.get("proof")))),
        *(
            by_title[title]
            for title in ("the code", "values that differ", "the cycle", "where it began")
            if title in by_title
        ),
        _first(None if diagnosis.verdict.culprits.ranks else by_title.get("where the ranks are"), STANDINGS),
        Section("what to do", _to_do(diagnosis, by_title), numbered=True),
        by_title.get("it could also be", _NOTHING),
        _first(_not_consequences(by_title.get("also found")), ALSO),
        _first(by_title.get("next commands"), COMMANDS),
        *(by_title[title] for title in ("state of the job", "hypotheses") if title in by_title),
        Section("coverage", [Point(line) for line in _coverage.short(diagnosis.coverage)]),
    ]
    return replace(whole, sections=[section for section in sections if section.points])


def _points(sections: dict[str, Section], title: str) -> list[Point]:
    return sections[title].points if title in sections else []


def _who(diagnosis: Diagnosis, sections: dict[str, Section]) -> Iterator[Point]:
    for point in _points(sections, "who"):
        yield Point(": ".join(filter(None, [point.text, ", ".join(point.details)])))
    victims = set(diagnosis.verdict.victims)
    places = [row.place for row in diagnosis.standings if victims & set(row.ranks)]
    where = f", at {places[0]}" if len(places) == 1 else ""
    for point in _points(sections, "waiting ranks (not the cause)"):
        doing = "waiting, not the cause" if diagnosis.verdict.category == "hang" else "not the cause"
        yield Point(f"{doing}: {point.text}{where}")


def _to_do(diagnosis: Diagnosis, sections: dict[str, Section]) -> list[Point]:
    now, fix = _points(sections, "what to do"), _points(sections, "how to fix it")
    if fix and diagnosis.verdict.category == "hang":
        now = now[:-1]  # that a hang must be ended goes without saying beside a fix
    return [*now, *fix]


def _not_consequences(section: Section | None) -> Section | None:
    if section is None:
        return None
    return replace(section, points=[point for point in section.points if not point.text.endswith(CONSEQUENCE)])


def _proof(section: Section | None) -> Iterator[Point]:
    """The first finding; its quotes alone where it says what the headline says."""
    if section is None:
        return
    first, *more = section.points
    quotes, left = first.inner[:QUOTES], len(first.inner[QUOTES:])
    rest = [counted(left, "more quote")] if left else []
    rest += [counted(len(more), "more finding")] if more else []
    ending = (Point(f"and {', '.join(rest)} (--verbose)"),) if rest else ()
    if first.text.startswith(SAID_ABOVE):
        yield from (*quotes, *ending)
    else:
        yield replace(first, inner=(*quotes, *ending))


def _first(section: Section | None, most: int) -> Section:
    if section is None:
        return _NOTHING
    left = len(section.points) - most
    more = [Point(f"and {left:,} more (--verbose)")] if left > 0 else []
    return replace(section, points=[*section.points[:most], *more])
