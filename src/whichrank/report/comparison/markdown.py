"""For a ticket."""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.model.difference import Difference
from whichrank.report._words import safe, shortened
from whichrank.report.comparison import ending, level
from whichrank.report.markdown import escaped

LONGEST = 300


def render(differences: list[Difference], looked: list[str]) -> Iterator[str]:
    if differences:
        yield "| | what | A | B | why |\n|---|---|---|---|---|\n"
    for number, d in enumerate(differences, 1):
        why = f"{level(d.suspicion)}: {d.why}"
        cells = [escaped(safe(shortened(" ".join(cell.split()), LONGEST))) for cell in (d.what, d.a, d.b, why)]
        yield f"| {number} | {' | '.join(cells)} |\n"
    yield f"\n{escaped(safe(ending(len(differences), looked)))}\n"
