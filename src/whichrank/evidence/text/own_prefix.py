"""The prefix by which a log tells its ranks apart, learned from the log itself.

Collectors and scripts put all kinds of things before a line: `[9] `, `[c8:11] `, `5|train|`, `(3) `. Such a number is
the rank if lines with it say so themselves (`[9] rank 9 ready`, `[c8:11] [rank11]: …`): at least two ranks agree, and
nobody disagrees.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_HOST = r"(?P<host>[A-Za-z][\w.-]{0,60})"
_RANK = r"(?P<rank>\d{1,5})"
_SHAPES = tuple(
    re.compile(shape)
    for shape in (
        rf"\[{_RANK}\]:? ?",
        rf"\[{_HOST}[:/| ]{_RANK}\]:? ?",
        rf"\({_RANK}\):? ?",
        rf"<{_RANK}>:? ?",
        rf"{_RANK}(?:\||: |> )",
        rf"{_HOST}[:/]{_RANK}(?:\||: |> )",
        rf"{_HOST}\[{_RANK}\]:? ",
    )
)
_SAYS = re.compile(r"\[rank(\d{1,5})\]|\brank[ :=](\d{1,5})(?=:|/\d| of | on | ready| up\b| init)", re.IGNORECASE)
_AGREED = 2
_LINES = 4000
_LONGEST = 600


def learn(edges: bytes) -> re.Pattern[str] | None:
    """The shape whose number is the rank, by the first and last lines of a file; None where none is."""
    lines = [line[:_LONGEST] for line in edges.decode("utf-8", "replace").split("\n")][:_LINES]
    return next((shape for shape in _SHAPES if _fits(shape, lines)), None)


def _fits(shape: re.Pattern[str], lines: Iterable[str]) -> bool:
    agreed: set[int] = set()
    for line in lines:
        match = shape.match(line)
        if match is None:
            continue
        said = _SAYS.search(line, match.end())
        if said is None:
            continue
        number = int(said[1] or said[2])
        if number != int(match["rank"]):
            return False
        agreed.add(number)
    return len(agreed) >= _AGREED
