"""csh and tcsh scripts, read as the shell script that does the same: `set`, `setenv`, `foreach`, `switch`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.records.settings import SettingsFile
from whichrank.source.shell.interpret import Interpreter, Neighbour

_LINES: tuple[tuple[str, str], ...] = (
    (r"foreach (\w+) ?\((.*)\)", r"for \1 in \2; do"),
    (r"while ?\((.*)\)", r"while [ \1 ]; do"),
    (r"end", "done"),
    (r"set ([A-Za-z_]\w*) ?= ?(.*)", r"\1=\2"),
    (r"setenv ([A-Za-z_]\w*) (.+)", r"export \1=\2"),
    (r"setenv ([A-Za-z_]\w*)", r"export \1="),
    (r"unsetenv (.*)", r"unset \1"),
    (r"@ ?([A-Za-z_]\w*) ?(?:\+\+|--)", r"\1=$((\1 + 1))"),
    (r"@ ?([A-Za-z_]\w*) ?[-+*/%]= ?(.*)", r"\1=$((\1 + \2))"),
    (r"@ ?([A-Za-z_]\w*) ?= ?(.*)", r"\1=$((\2))"),
    (r"else if ?\((.*)\) ?then", r"elif [ \1 ]; then"),
    (r"if ?\((.*)\) ?then", r"if [ \1 ]; then"),
    (r"if ?\((.*?)\) (\S.*)", r"if [ \1 ]; then \2; fi"),
    (r"endif", "fi"),
    (r"breaksw", ":"),
)


def read(text: str, label: str, neighbour: Neighbour | None = None) -> SettingsFile:
    out = SettingsFile.empty(label, "csh")
    return Interpreter(out, text.split("\n"), 1, neighbour).run("\n".join(_translated(text.split("\n"))))


def _translated(lines: list[str]) -> Iterator[str]:
    """Line by line, so that line numbers stay."""
    labels = False  # of the switch, since the last command
    for line in lines:
        plain = re.sub(r" #(?: .*|$)", "", " ".join(line.split()))
        if match := re.fullmatch(r"switch ?\((.*)\)", plain):
            yield f"case {match[1]} in ''"
            labels = True
        elif match := re.fullmatch(r"(?:case (.*?)|default) ?:", plain):
            pattern = match[1] or "*"
            yield f"|{pattern}" if labels else f";; {pattern}"
            labels = True
        elif plain == "endsw":
            yield ") ;; esac" if labels else ";; esac"
            labels = False
        else:
            command = bool(plain) and not plain.startswith("#")
            yield (") " if labels and command else "") + _line(line, plain)
            labels = labels and not command


def _line(line: str, plain: str) -> str:
    for pattern, shape in _LINES:
        if match := re.fullmatch(pattern, plain):
            return match.expand(shape)
    return line
