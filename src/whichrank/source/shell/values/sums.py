"""Sums that a shell computes: `$((NODES * GPUS))`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whichrank.source.shell.words import Lookup

_TERMS = re.compile(r"\s*(?:(\d{1,12})|\$?\{?([A-Za-z_]\w{0,80})\}?|([-+*/%()]))")
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}
_MOST_TERMS = 40


def computed(text: str, lookup: Lookup) -> tuple[str, bool] | None:
    """`$((NODES * GPUS))` of numbers that are known, and whether nobody may have set others."""
    inner = text[3:].removesuffix("))").rstrip()
    terms: list[int | str] = []
    fixed, at = True, 0
    while at < len(inner) and len(terms) < _MOST_TERMS:
        match = _TERMS.match(inner, at)
        if not match:
            return None
        digits, name, sign = match.groups()
        if name:
            value = lookup(name)
            if value is None or value.items is not None or not re.fullmatch(r"\d{1,12}", value.text):
                return None
            digits, fixed = value.text, fixed and value.fixed
        terms.append(sign or int(digits))
        at = match.end()
    found = _sum(terms, 0) if at >= len(inner) else None
    return (str(found[0]), fixed) if found is not None and found[1] == len(terms) and found[0] >= 0 else None


def _sum(terms: list[int | str], at: int, least: int = 1) -> tuple[int, int] | None:
    """The number that terms from here on make, and where it ends; operators that bind less are left over."""
    first = terms[at] if at < len(terms) else ""
    inner = _sum(terms, at + 1) if first == "(" else None
    if inner is not None and inner[1] < len(terms) and terms[inner[1]] == ")":
        left, at = inner[0], inner[1] + 1
    elif isinstance(first, int):
        left, at = first, at + 1
    else:
        return None
    while at < len(terms) and (binds := _PRECEDENCE.get(str(terms[at]), 0)) >= least:
        right = _sum(terms, at + 1, binds + 1)
        if right is None or (terms[at] in {"/", "%"} and right[0] == 0):
            return None
        number = right[0]
        left = {
            "+": left + number, "-": left - number, "*": left * number,
            "/": left // (number or 1), "%": left % (number or 1),
        }[str(terms[at])]  # fmt: skip
        at = right[1]
    return left, at
