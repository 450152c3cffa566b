"""For a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.model.difference import Difference
from whichrank.report._words import counted, safe
from whichrank.report.comparison import ending, level


def render(differences: list[Difference], looked: list[str]) -> Iterator[str]:
    if differences:
        yield f"{counted(len(differences), 'difference')} between A and B, most suspicious first\n\n"
    for number, d in enumerate(differences, 1):
        what, mine, theirs, why = map(safe, (d.what, d.a, d.b, d.why))
        yield f"{number:>3}. {what}  ({level(d.suspicion)})\n       A: {mine}\n       B: {theirs}\n       {why}\n"
    yield ("\n" if differences else "") + f"{ending(len(differences), looked)}\n"
