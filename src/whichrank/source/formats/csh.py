"""csh and tcsh scripts, read as the shell script that does the same: `set`, `setenv`, `foreach`, `switch`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.records.settings import SettingsFile
from whichrank.source.shell.interpret import Interpreter, Neighbour

_LINES: tuple[tuple[str, str], ...] = (
    (r"(\s*)set\s+([A-Za-z_]\w*)\s*=\s*(.*)", r"\1\2=\3"),
    (r"(\s*)setenv\s+([A-Za-z_]\w*)\s+(.+)", r"\1export \2=\3"),
    (r"(\s*)setenv\s+([A-Za-z_]\w*)\s*", r"\1export \2="),
    (r"(\s*)unsetenv\s+(.*)", r"\1unset \2"),
    (r"(\s*)@\s*([A-Za-z_]\w*)\s*(\+\+|--)\s*", r"\1\2=$((\2\3))"),
    (r"(\s*)@\s*([A-Za-z_]\w*)\s*([-+*/%]?)=\s*(.*)", r"\1\2=$((\4))"),
    (r"(\s*)else\s+if\s*\((.*)\)\s*then\s*", r"\1elif [ \2 ]; then"),
    (r"(\s*)if\s*\((.*)\)\s*then\s*", r"\1if [ \2 ]; then"),
    (r"(\s*)if\s*\((.*?)\)\s+(\S.*)", r"\1if [ \2 ]; then \3; fi"),
    (r"(\s*)endif\s*", r"\1fi"),
    (r"(\s*)breaksw\s*", r"\1:"),
)
_OPENS = (
    (r"(\s*)foreach\s+(\w+)\s*\((.*)\)\s*", r"\1for \2 in \3; do"),
    (r"(\s*)while\s*\((.*)\)\s*", r"\1while [ \2 ]; do"),
)


def read(text: str, label: str, neighbour: Neighbour | None = None) -> SettingsFile:
    out = SettingsFile.empty(label, "csh")
    return Interpreter(out, text.split("\n"), 1, neighbour).run("\n".join(_translated(text.split("\n"))))


def _translated(lines: list[str]) -> Iterator[str]:
    """Line by line, so that line numbers stay."""
    labels = False  # of the switch, since the last command
    for line in lines:
        plain = re.sub(r"\s+#\s.*", "", line)
        if match := re.fullmatch(r"\s*switch\s*\((.*)\)\s*", plain):
            yield f"case {match[1]} in ''"
            labels = True
        elif match := re.fullmatch(r"\s*(?:case\s+(.*?)|(default))\s*:\s*", plain):
            pattern = match[1] or "*"
            yield f"|{pattern}" if labels else f";; {pattern}"
            labels = True
        elif re.fullmatch(r"\s*endsw\s*", plain):
            yield ") ;; esac" if labels else ";; esac"
            labels = False
        else:
            command = bool(plain.strip()) and not plain.lstrip().startswith("#")
            yield (") " if labels and command else "") + _line(line, plain)
            labels = labels and not command


def _line(line: str, plain: str) -> str:
    for pattern, shape in (*_OPENS, *_LINES):
        if match := re.fullmatch(pattern, plain):
            return match.expand(shape)
    return "done" if plain.strip() == "end" else line
