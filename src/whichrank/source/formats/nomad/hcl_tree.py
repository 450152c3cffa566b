"""HCL of Nomad jobs as a tree with lines. Blocks become maps; a block's label is the key of one more map."""

from __future__ import annotations

import re

from whichrank.source.formats.yaml_tree import Node

_TOKEN = re.compile(
    r"(?P<skip>[ \t\r,]+|#[^\n]*|//[^\n]*)|(?P<line>\n)|(?P<comment>/\*)|(?P<heredoc><<-?(?P<mark>\w+)\n)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<sign>[{}\[\]=:])|(?P<word>[^\s{}\[\]=:,"#]+)|(?P<other>.)',
    re.DOTALL,
)
DEPTH_LIMIT = 40


class _Token:
    __slots__ = ("kind", "line", "text")

    def __init__(self, kind: str, text: str, line: int) -> None:
        self.kind, self.text, self.line = kind, text, line


def parse(text: str) -> Node:
    tokens: list[_Token] = []
    line, at = 1, 0
    while match := _TOKEN.match(text, at):
        kind = "heredoc" if match["heredoc"] else match.lastgroup or ""
        end = match.end()
        if kind == "comment":
            close = text.find("*/", end)
            end = close + 2 if close >= 0 else len(text)
        elif kind == "heredoc":
            mark = re.compile(rf"\n[ \t]*{match['mark']}(?=\s|\Z)").search(text, end - 1)
            end = mark.end() if mark else len(text)
        if kind not in {"skip", "line", "comment", "other"}:
            tokens.append(_Token(kind, text[at:end], line))
        line += text.count("\n", at, end)
        at = end
    return _Reader(tokens).body(0)


class _Reader:
    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens, self.index = tokens, 0

    def peek(self) -> str:
        return self.tokens[self.index].text if self.index < len(self.tokens) else ""

    def next(self) -> _Token:
        token = self.tokens[self.index]
        self.index += 1
        return token

    def body(self, depth: int) -> Node:
        """`name = value` and `name "label" { … }` up to the closing brace."""
        node = Node("map", self.tokens[self.index].line if self.index < len(self.tokens) else 1)
        while self.index < len(self.tokens) and self.peek() != "}" and depth < DEPTH_LIMIT:
            key = self.next()
            labels = []
            while self.index < len(self.tokens) and self.tokens[self.index].kind == "string":
                labels.append(self.next())
            if self.peek() in {"=", ":"}:
                self.next()
                value = self.value(depth + 1)
            elif self.peek() == "{":
                self.next()
                value = self.body(depth + 1)
                self.close()
                for label in reversed(labels):
                    value = Node("map", label.line, pairs=[(_scalar(label), value)])
            else:
                continue
            node.pairs.append((_scalar(key), value))
        return node

    def close(self) -> None:
        if self.index < len(self.tokens):
            self.next()

    def value(self, depth: int) -> Node:
        if self.index >= len(self.tokens) or depth >= DEPTH_LIMIT:
            return Node("scalar", 1)
        token = self.next()
        if token.text == "{":
            node = self.body(depth + 1)
            self.close()
            return node
        if token.text == "[":
            node = Node("list", token.line)
            while self.index < len(self.tokens) and self.peek() != "]":
                node.items.append(self.value(depth + 1))
            self.close()
            return node
        return _scalar(token)


def _scalar(token: _Token) -> Node:
    if token.kind == "string":
        return Node("scalar", token.line, re.sub(r'\\(["\\])', r"\1", token.text[1:-1]), '"')
    if token.kind == "heredoc":
        rows = token.text.split("\n")
        return Node("scalar", token.line, "\n".join(rows[1:-1]), "|", token.line + len(rows))
    return Node("scalar", token.line, token.text)
