"""Dollar signs of a Makefile that are meant for the shell and that make takes for its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

# GNU make 4.4: the functions that `$(name …)` may call.
_FUNCTIONS = frozenset({
    "subst", "patsubst", "strip", "findstring", "filter", "filter-out", "sort", "word", "wordlist", "words",
    "firstword", "lastword", "dir", "notdir", "suffix", "basename", "addsuffix", "addprefix", "join", "wildcard",
    "realpath", "abspath", "if", "or", "and", "intcmp", "foreach", "file", "call", "value", "eval", "origin", "flavor",
    "error", "warning", "info", "shell", "guile", "let",
})  # fmt: skip
_COMMANDS = frozenset(["hostname", "nproc", "pwd", "whoami", "date", "uname", "id", "nvidia-smi"])
_CALL = re.compile(r"(?<!\$)\$\(([A-Za-z][\w./-]{0,60})(\s[^()\n]{0,300})?\)")
_UPPER = re.compile(r"(?<!\$)\$([A-Z])([A-Z0-9_]+)")
_OWN = re.compile(r"\bfor\s+([A-Za-z_]\w{0,40})\s+in\b|(?:^|;|&&)\s*([a-z_]\w{0,40})=(?!=)")
_FIELD = re.compile(r"\bawk\b[^'\n]{0,80}'[^'\n]{0,200}?(?<!\$)(\$\d)\b")


class Taken(NamedTuple):
    """What make replaces, and by what."""

    name: str
    offset: int
    why: str
    fix: str


def commands(text: str, values: Mapping[str, str]) -> Iterator[Taken]:
    """`$(head -n1 hosts)`: a variable with that odd name, which is empty; and fields of awk."""
    for match in _CALL.finditer(text):
        name, rest = match[1], match[2]
        whole = match.group()[2:-1]
        if name in _FUNCTIONS or name in values or whole in values or not (rest or name in _COMMANDS):
            continue
        why = f"make takes {match.group()} for a variable of its own, which is empty: no shell runs {name}"
        fix = f"Write $${match.group()[1:]} in a recipe, or $(shell {whole})."
        yield Taken(match.group(), text.count("\n", 0, match.start()), why, fix)
    for match in _FIELD.finditer(text):
        why = f"make takes {match[1]} for a variable of its own, which is empty: awk prints the whole line"
        yield Taken(match[1], text.count("\n", 0, match.start(1)), why, f"Write ${match[1]}.")


def variables(text: str, values: Mapping[str, str]) -> Iterator[Taken]:
    """`$NAME` in a recipe is make's `$N` with the text AME behind it; so are variables that the recipe itself sets."""
    for match in _UPPER.finditer(text):
        if match[1] not in values:
            yield _split(match[1] + match[2], match.group(), text.count("\n", 0, match.start()))
    for name in {first or second for first, second in _OWN.findall(text)}:
        for match in re.finditer(rf"(?<!\$)\$(?:\{{{name}\}}|\({name}\)|{name}\b)", text):
            if name not in values and name[0] not in values:
                yield _split(name, match.group(), text.count("\n", 0, match.start()))


def _split(name: str, written: str, offset: int) -> Taken:
    if written[1] in "{(":
        why = f"make takes {written} for a variable of its own, which is empty"
    else:
        why = (
            f"make reads ${name[0]} (which is empty) and then the text {name[1:]}"
            if name[1:]
            else f"make reads ${name}"
        )
    return Taken(name, offset, why, f"Write $${name}, or $({name}) for make's own.")
