"""Words, operators and here-documents of shell text, read one after the other."""

from __future__ import annotations

import re
from typing import NamedTuple

# Most of a script: blanks and a word without quotes, variables or brackets, or the end of a line.
_USUAL = re.compile(r"(?:[ \t\r\f\v]|\\\r?\n)*(?:([^\\'\"`$(){}\s;&|<>#][^\\'\"`$(){}\s;&|<>]*)(?=[\s;&|)]|\Z)|(\n))")
_BLANK = re.compile(r"(?:[ \t\r\f\v]|\\\r?\n)+")
_OPERATOR = re.compile(r"&&|\|\||;;&|;&|;;|\|&|[;&|()\n]")
_REDIRECT = re.compile(r"(?:\d+|\{\w+\})?(?:<<<|<<-|<<|&>>|&>|>>|>&|<&|>\||<>|>|<)")
_PLAIN = re.compile(r"[^\\'\"`$(){}\s;&|<>]+")
_ARRAY = re.compile(r"[A-Za-z_]\w*(?:\[[^\]\s]*\])?\+?=$")
_HEREDOC_MARK = r"[\\'\"]"


class Word(NamedTuple):
    """One word as written."""

    raw: str
    line: int


class Redirect:
    """Where output goes or input comes from; with the text of a here-document or here-string."""

    __slots__ = ("body", "body_line", "literal", "operator", "target")

    def __init__(self, operator: str, target: Word) -> None:
        self.operator, self.target = operator, target
        self.body, self.body_line = "", 0
        self.literal = False  # the here-document is not expanded


class Comment(NamedTuple):
    text: str
    line: int


def word_end(text: str, start: int) -> int:  # noqa: C901, PLR0912 - one branch per character that means something
    """The index behind the word that begins at `start`, whatever is quoted or nested in it."""
    closers: list[str] = []
    index, size = start, len(text)
    while index < size:
        if plain := _PLAIN.match(text, index):
            index = plain.end()
            continue
        char, top = text[index], closers[-1] if closers else ""
        following = text[index + 1 : index + 2]
        if char == "\\":
            index += 2
        elif char == "$" and following in {"(", "{"}:
            closers.append(")" if following == "(" else "}")
            index += 2
        elif top == '"':
            if char == '"':
                closers.pop()
            index += 1
        elif char == "'":
            end = text.find("'", index + 1)
            index = size if end < 0 else end + 1
        elif char in '"`':
            if top == char:
                closers.pop()
            else:
                closers.append(char)
            index += 1
        elif closers:
            if char == top:
                closers.pop()
            elif char == "(" and top == ")":
                closers.append(")")
            index += 1
        elif char == "(" and (_ARRAY.match(text, start, index) or (index > start and text[index - 1] in "?*+@!")):
            closers.append(")")
            index += 1
        elif char in "<>" and following == "(" and index == start:
            closers.append(")")
            index += 2
        elif char.isspace() or char in ";&|<>()":
            break
        else:
            index += 1
    return min(index, size)


class Tokens:
    """Tokens on demand: kind, text and line of the present one."""

    def __init__(self, text: str, first_line: int) -> None:
        self.source, self.position, self.here = text, 0, first_line
        self.comments: list[Comment] = []
        self.pending: list[Redirect] = []
        self.kind = self.text = ""
        self.line = first_line
        self.advance()

    def advance(self) -> None:
        """Read the next token into kind, text and line."""
        source = self.source
        if usual := _USUAL.match(source, self.position):
            self._usual(usual)
            return
        while True:
            if blank := _BLANK.match(source, self.position):
                self._move(blank.end())
            if source.startswith("#", self.position):
                end = source.find("\n", self.position)
                end = len(source) if end < 0 else end
                self.comments.append(Comment(source[self.position : end], self.here))
                self.position = end
                continue
            break
        self.line = self.here
        if self.position >= len(source):
            self.kind, self.text = "end", ""
            return
        if (found := _REDIRECT.match(source, self.position)) and not source.startswith("(", found.end()):
            self.kind = "redirect"
        elif found := _OPERATOR.match(source, self.position):
            self.kind = "newline" if found.group() == "\n" else "operator"
        else:
            end = word_end(source, self.position)
            self.kind, self.text = "word", source[self.position : max(end, self.position + 1)]
            self._move(max(end, self.position + 1))
            return
        self.text = found.group()
        self._move(found.end())
        if self.kind == "newline" and self.pending:
            self._here_documents()

    def _usual(self, found: re.Match[str]) -> None:
        end = found.end()
        if found.lastindex == 1:
            begin = found.start(1)
            if begin - self.position > 1:
                self.here += self.source.count("\n", self.position, begin)
            self.kind, self.text, self.line = "word", found[1], self.here
            self.position = end
            return
        self._move(end - 1)
        self.kind, self.text, self.line = "newline", "\n", self.here
        self._move(end)
        if self.pending:
            self._here_documents()

    def _move(self, end: int) -> None:
        self.here += self.source.count("\n", self.position, end)
        self.position = end

    def _here_documents(self) -> None:
        """The bodies that stand below the line that was just ended."""
        for redirect in self.pending:
            mark = re.sub(_HEREDOC_MARK, "", redirect.target.raw)
            redirect.literal = mark != redirect.target.raw
            indent = r"[ \t]*" if redirect.operator.endswith("-") else ""
            end = re.compile(rf"^{indent}{re.escape(mark)}[ \t]*\r?$", re.MULTILINE).search(self.source, self.position)
            stop, after = (end.start(), end.end()) if end else (len(self.source), len(self.source))
            redirect.body, redirect.body_line = self.source[self.position : stop], self.here
            self._move(after)
            if self.source.startswith("\n", self.position):
                self._move(self.position + 1)
        self.pending = []


def split_words(text: str, first_line: int) -> list[Word]:
    """The words of an array's body."""
    parser = Tokens(text, first_line)
    found = []
    while parser.kind != "end":
        if parser.kind == "word":
            found.append(Word(parser.text, parser.line))
        parser.advance()
    return found
