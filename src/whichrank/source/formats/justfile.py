"""justfiles: `export NAME := "value"`, and recipes of which each line is a shell of its own."""

from __future__ import annotations

import re

from whichrank.records.settings import UNKNOWN, SettingsFile
from whichrank.source.formats.makefile import LINE_LIMIT, Make, one_run, recipe, record
from whichrank.source.shell.embedded import Given

KIND = "justfile"
_SET = re.compile(r"(export\s+)?([A-Za-z_][\w-]*)\s*:=\s*(.*)")
_HEAD = re.compile(r"@?[A-Za-z_][\w-]*(?:\s[^:]{0,500})?:(?!=).*")


def read(text: str, label: str) -> SettingsFile:
    """What is exported to the recipes, and what their lines set and start."""
    lines = text.split("\n")
    just = Make(SettingsFile.empty(label, KIND), lines)
    just.shell_like = True
    just.every = bool(re.search(r"^set\s+export(?:\s*:=\s*true)?\s*$", text, re.MULTILINE))
    bodies = _top_level(just)
    for name, (value, line, sure) in just.set_at.items():
        record(just, name, value, line, sure)
    given = [Given(n, v, at) for n, (v, at, _) in just.set_at.items() if n in just.exported or just.every]
    for body in bodies:
        just.one_shell = bool(body) and body[0][1].startswith("#!")
        recipe(just, body, given, just.values)
    one_run(just)
    return just.out


def _top_level(just: Make) -> list[list[tuple[int, str]]]:
    bodies: list[list[tuple[int, str]]] = []
    inside = False
    for number, line in enumerate(just.lines, 1):
        if len(line) > LINE_LIMIT:
            continue
        if line[:1] in {" ", "\t"}:
            if inside and line.strip():
                bodies[-1].append((number, _filled(just, line.strip())))
            continue
        if not line.strip() or line.startswith(("#", "[")):
            continue
        inside = False
        if match := _SET.fullmatch(line.rstrip()):
            just.values[match[2]] = value = _value(just, match[3])
            just.set_at[match[2]] = (value, number, True)
            if match[1]:
                just.exported.add(match[2])
        elif _HEAD.fullmatch(line) and not line.startswith(("set ", "alias ", "import ", "mod ")):
            bodies.append([])
            inside = True
    return bodies


def _value(just: Make, text: str) -> str:
    """A string, a variable, or the default of `env_var_or_default`; other expressions only a run would tell."""
    text = re.sub(r"\s+#.*", "", text).strip()
    if match := re.fullmatch(r"env(?:_var_or_default)?\(\s*[\"'][^\"']*[\"']\s*,\s*(.*)\)", text):
        text = match[1].strip()
    if match := re.fullmatch(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'", text):
        return match[1] if match[1] is not None else match[2]
    return just.values.get(text, UNKNOWN)


def _filled(just: Make, line: str) -> str:
    return re.sub(r"\{\{\s*([^{}]*?)\s*\}\}", lambda m: just.values.get(m[1], "${UNKNOWN}"), line)
