"""Text of a Makefile with its variables and functions put in, as far as the file itself says them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from whichrank.records.settings import UNKNOWN

DEPTH_LIMIT = 8
_REFERENCE = re.compile(r"\$(?:\$|[({]|[@<^*?+%])")


def expand(text: str, values: Mapping[str, str], depth: int = 0) -> str:
    """References replaced; UNKNOWN for what only make would tell. `$$` becomes `$`."""
    out: list[str] = []
    at = 0
    while match := _REFERENCE.search(text, at):
        out.append(text[at : match.start()])
        sign = match.group()
        if sign == "$$":
            out.append("$")
            at = match.end()
        elif sign[1] in "({":
            end = _closing(text, match.end() - 1)
            out.append(_reference(text[match.end() : end], values, depth + 1))
            at = end + 1
        else:
            out.append(UNKNOWN)
            at = match.end()
    return "".join([*out, text[at:]])


def _closing(text: str, opening: int) -> int:
    """The bracket that closes the one at this place; the end of the text where none does."""
    pair = {"(": ")", "{": "}"}
    opener, closer = text[opening], pair[text[opening]]
    level = 0
    for index in range(opening, len(text)):
        level += (text[index] == opener) - (text[index] == closer)
        if not level:
            return index
    return len(text)


def _reference(inner: str, values: Mapping[str, str], depth: int) -> str:
    if re.fullmatch(r"[\w.-]+", inner):
        return values.get(inner, UNKNOWN)
    name, _, rest = inner.partition(" ")
    if depth > DEPTH_LIMIT or name not in _FUNCTIONS:
        return UNKNOWN
    return _FUNCTIONS[name](_arguments(rest), values, depth)


def _arguments(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    found, level, start = [], 0, 0
    for index, char in enumerate(text):
        level += (char in "({") - (char in ")}")
        if char == "," and not level:
            found.append(text[start:index])
            start = index + 1
    return [*found, text[start:]]


def _foreach(given: list[str], values: Mapping[str, str], depth: int) -> str:
    if len(given) < 3:
        return UNKNOWN
    name, items, body = given[0].strip(), expand(given[1], values, depth).split()[:64], ",".join(given[2:])
    return " ".join(expand(body, {**values, name: item}, depth) for item in items)


def _each(change: Callable[[str, str], str]) -> Callable[[list[str], Mapping[str, str], int], str]:
    def run(given: list[str], values: Mapping[str, str], depth: int) -> str:
        if len(given) < 2:
            return UNKNOWN
        words = expand(",".join(given[1:]), values, depth).split()
        return " ".join(change(expand(given[0], values, depth), word) for word in words)

    return run


def _patsubst(given: list[str], values: Mapping[str, str], depth: int) -> str:
    if len(given) < 3 or given[0].strip() != "%":
        return UNKNOWN
    words = expand(",".join(given[2:]), values, depth).split()
    return " ".join(expand(given[1], values, depth).replace("%", word, 1) for word in words)


_FUNCTIONS: dict[str, Callable[[list[str], Mapping[str, str], int], str]] = {
    "foreach": _foreach,
    "addprefix": _each(lambda prefix, word: prefix + word),
    "addsuffix": _each(lambda suffix, word: word + suffix),
    "patsubst": _patsubst,
    "strip": lambda given, values, depth: " ".join(expand(",".join(given), values, depth).split()),
}
