"""Numbers whose unit the file's own comments tell: `# wait 5 s` above a variable that takes milliseconds."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.facts.variables.environment import catalogue
from whichrank.facts.variables.units import SIZES, TIMES, unit
from whichrank.facts.variables.values import problem
from whichrank.model.evidence import Ref
from whichrank.records.settings import Assignment, Clash, SettingsFile
from whichrank.source.places.told_interfaces import comments

_QUANTITY = re.compile(
    r"(?<![\w.:-])(\d{1,9})[ \t]?(ms|msecs?|milliseconds?|us|microseconds?|s|secs?|seconds?|min|mins|minutes?|h|hours?"
    r"|bytes|[kK]i?B|[MG]i?B)(?![\w/])"
)
_EACH = re.compile(r"\b(?:once (?:per|a|every)|every|each) (millisecond|second|minute|hour)\b", re.IGNORECASE)
_SHORT = {"u": "us", "s": "s", "h": "h", "b": "bytes", "k": "KiB", "g": "GiB"}
_FURTHEST = 3
"""Lines below a comment that it may still be about."""


def check(out: SettingsFile, text: str) -> None:
    """Add a clash for every number that stands below its own quantity in another unit."""
    judged = [a for a in out.assignments if re.fullmatch(r"\d{1,9}", a.value or "") and a.name in catalogue()]
    judged = [a for a in judged if unit(catalogue()[a.name]) and problem(catalogue()[a.name], a.value or "") is None]
    if not judged:
        return
    rows = text.split("\n")
    told = {last: (line, said) for line, last, said in comments(text)}
    for each in judged:
        near = range(each.ref.line, each.ref.line - _FURTHEST - 1, -1)
        for last in (at for at in near if at in told and _about(rows, at, each.ref.line)):
            clash = _other_unit(out, each, *told[last])
            if clash is not None:
                out.clashes += [clash] if clash not in out.clashes else []
                break


def _other_unit(out: SettingsFile, each: Assignment, line: int, said: str) -> Clash | None:
    own, value = unit(catalogue()[each.name]), int(each.value or "0")
    found = [(number, each_unit) for number, each_unit in _quantities(said) if _same_kind(own, each_unit)]
    wrong = [each_unit for number, each_unit in found if number == value and each_unit != own]
    if not wrong or any(_equal(value, own, number, each_unit) for number, each_unit in found):
        return None
    why = f"the comment says {value} {wrong[0]}, and the variable is read in {own}"
    right = round(value * _factor(wrong[0]) / _factor(own))
    also = (Ref(out.label, f"line {line}", said[:300]),)
    return Clash(each.name, each.ref, why, f"Write {right}." if right else f"It takes {own}.", also)


_COMMENT = ("#", "//")


def _about(rows: list[str], last: int, line: int) -> bool:
    """The comment that ends on a line: behind the setting itself, or above it with a few other settings in between."""
    if last == line:
        return True
    between = rows[last : line - 1]
    return rows[last - 1].lstrip().startswith(_COMMENT) and all(
        row.strip() and not row.lstrip().startswith(_COMMENT) for row in between
    )


def _quantities(said: str) -> Iterator[tuple[int, str]]:
    for match in _QUANTITY.finditer(said):
        yield int(match[1]), _unit(match[2])
    for match in _EACH.finditer(said):
        yield 1, _unit(match[1])


def _unit(word: str) -> str:
    lower = word.lower()
    if lower.startswith("m"):
        return (
            "MiB" if lower.endswith("b") else "min" if lower.startswith("min") else "us" if "micro" in lower else "ms"
        )
    return _SHORT[lower[0]]


def _factor(one: str) -> float:
    return TIMES[one] if one in TIMES else SIZES[one]


def _same_kind(one: str, other: str) -> bool:
    return (one in TIMES) == (other in TIMES)


def _equal(value: int, own: str, number: int, other: str) -> bool:
    return value * _factor(own) == number * _factor(other)
