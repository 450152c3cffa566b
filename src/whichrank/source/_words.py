"""Shell text as commands of words with their lines; enough of the grammar to know what is assigned where."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

# Every alternative starts with another character, so each character is looked at once.
_TOKEN = re.compile(
    r"""(?P<skip>(?:[ \t\r\f\v]|\\\r?\n)+)
      | (?P<comment>\#[^\n]*)
      | (?P<heredoc><<-?[ \t]*(?P<quote>["']?)(?P<mark>[A-Za-z_]\w*)(?P=quote))
      | (?P<redirect>[0-9]*(?:>>?|<)(?![<(])(?:&[0-9-])?)
      | (?P<newline>\n)
      | (?P<op>[;&|()<>]+)
      | (?P<word>(?:[^\s'"\\;&|()<>]+|\\.|'[^']*'|"[^"\\]*(?:\\.[^"\\]*)*")+)
      | (?P<stray>.)""",
    re.VERBOSE | re.DOTALL,
)
_PIECE = re.compile(r"""\\\n|\\(.)|'([^']*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|([^'"\\]+)|(.)""", re.DOTALL)
_IN_DOUBLE = re.compile(r"""\\\n|\\([\\"$`])""")
_DEFAULT = re.compile(r"\$\{\w+:?[-=]([^${}`]*)\}")


class Word(NamedTuple):
    """One word as written."""

    raw: str
    line: int

    @property
    def quoted(self) -> str | None:
        """The inside of a word that is one quoted string."""
        if len(self.raw) > 1 and self.raw[0] in "'\"" and self.raw[-1] == self.raw[0]:
            return self.raw[1:-1]
        return None


@dataclass(slots=True)
class Command:
    """Words up to a separator, with what they are redirected to and the here-document that follows."""

    words: list[Word] = field(default_factory=list)
    target: str = ""
    heredoc: str = ""
    heredoc_line: int = 0
    after: str = ""
    """The operator before it: "&&" and "||" make it depend on what came before."""


class Comment(NamedTuple):
    text: str
    line: int


def plain(raw: str) -> str:
    """A word without its quotes and escapes."""

    def piece(match: re.Match[str]) -> str:
        escaped, single, double, bare, stray = match.groups()
        if double is not None:
            return _IN_DOUBLE.sub(lambda m: m.group(1) or "", double)
        return escaped or single or bare or stray or ""

    return _PIECE.sub(piece, raw)


def literal(raw: str) -> str | None:
    """The value that a word stands for, or None where only running the script would tell."""
    if raw.startswith("'") and raw.endswith("'") and raw.count("'") == 2:
        return raw[1:-1]
    value = plain(raw)
    if match := _DEFAULT.fullmatch(value):
        return match[1].strip("\"'")
    return None if "$" in value or "`" in value else value


def commands(text: str, first_line: int = 1) -> Iterator[Command | Comment]:
    """The commands and comments of a script, in order."""
    ends = [match.start() for match in re.finditer("\n", text)]
    current = Command()
    expects_target = False
    position, pending = 0, ""
    while match := _TOKEN.match(text, position):
        kind, position = match.lastgroup, match.end()
        if kind == "skip":
            continue
        line = first_line + bisect_right(ends, match.start() - 1)
        if kind in {"heredoc", "mark"}:
            pending = match["mark"]
        elif kind == "comment":
            yield Comment(match.group(), line)
        elif kind == "redirect":
            expects_target = "<" not in match.group() and not match.group().endswith(tuple("0123456789-"))
        elif kind in {"word", "stray"}:
            if expects_target:
                current.target, expects_target = plain(match.group()), False
            else:
                current.words.append(Word(match.group(), line))
        elif kind in {"newline", "op"}:
            if kind == "newline" and pending:
                body_end, position = _heredoc_end(text, position, pending)
                current.heredoc, current.heredoc_line = text[match.end() : body_end], line + 1
                pending = ""
            if current.words or current.heredoc:
                yield current
            current, expects_target = Command(after=match.group() if kind == "op" else ""), False
    if current.words:
        yield current


def _heredoc_end(text: str, start: int, mark: str) -> tuple[int, int]:
    """Where the body of a here-document ends, and where the script goes on."""
    match = re.compile(rf"^[ \t]*{mark}[ \t]*\r?$", re.MULTILINE).search(text, start)
    return (match.start(), match.end()) if match else (len(text), len(text))
