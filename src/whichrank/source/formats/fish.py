"""fish scripts, read as the shell script that does the same: `set -x`, blocks that close with `end`, `(command)`."""

from __future__ import annotations

import re

from whichrank.records.settings import SettingsFile
from whichrank.source import shell

_SET = re.compile(r"(\s*)set\s+((?:-\S+\s+)*)([A-Za-z_]\w*)(?:\s+(.*))?")
_OPENS = {
    "if": (r"if (.*)", r"if \1; then", "fi"),
    "while": (r"while (.*)", r"while \1; do", "done"),
    "for": (r"for (.*)", r"for \1; do", "done"),
    "function": (r"function ([\w-]+).*", r"\1() {", "}"),
    "begin": (r"begin.*", "{", "}"),
}


def read(text: str, label: str) -> SettingsFile:
    out = shell.read(_translated(text), label)
    out.kind = "fish"
    return out


def _translated(text: str) -> str:
    """Line by line, so that line numbers stay."""
    open_blocks: list[str] = []
    return "\n".join(_line(line, open_blocks) for line in text.split("\n"))


def _line(line: str, open_blocks: list[str]) -> str:
    line = re.sub(r"(?<![\w$\\])\((?=\S)", "$(", line)
    if match := _SET.fullmatch(line.split(" #")[0].rstrip()):
        return _set(match)
    stripped = re.sub(r"\bset (?:-q|--query) (\w{1,80})", r'[ -n "${\1:-}" ]', line.strip())
    word = stripped.split(maxsplit=1)[0] if stripped else ""
    if word in _OPENS:
        pattern, shape, closing = _OPENS[word]
        open_blocks.append(closing)
        return re.sub(pattern, shape, stripped)
    if word == "switch":
        open_blocks.append("esac")
        return re.sub(r"switch (.*)", r"case \1 in '')", stripped)
    if word == "case":
        return ";; " + "|".join(stripped.split()[1:]) + ")"
    if stripped.startswith("else if "):
        return f"elif {stripped[8:]}; then"
    if word == "end" and open_blocks:
        closing = open_blocks.pop()
        return f";; {closing}" if closing == "esac" else closing
    return line


def _set(match: re.Match[str]) -> str:
    indent, flags, name, value = match.groups()
    letters = "".join(flag[1:] for flag in flags.split() if not flag.startswith("--"))
    if "e" in letters or "--erase" in flags:
        return f"{indent}unset {name}"
    words = (value or "").split()
    text = words[0] if len(words) == 1 else f'"{" ".join(words)}"' if words else "''"
    return f"{indent}export {name}={text}" if "x" in letters or "--export" in flags else f"{indent}{name}={text}"
