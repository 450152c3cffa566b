"""Shell text as a tree of commands: POSIX sh and bash, read without running anything.

A parser of our own, because the alternatives don't fit: bashlex is GPL, tree-sitter adds two native wheels to every
installation and leaves quoting and expansion, most of the work here, to the caller. It never raises: what it
can't place is skipped, and nesting is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from whichrank.source.shell.tokens import Comment, Redirect, Tokens, Word, split_words

DEPTH_LIMIT = 40
_RESERVED_END = frozenset({"then", "else", "elif", "fi", "do", "done", "esac", "}", ";;", ";&", ";;&", ")"})


# Operators of `[[ … ]]`, beside texts in quotes and substitutions of commands, which stay whole.
_IN_BRACKETS = re.compile(r"\$\([^()\n]{0,400}\)|\"[^\"\n]{0,400}\"|'[^'\n]{0,400}'|(&&|\|\||[<>()|;])")


class Simple(NamedTuple):
    """A command of words; assignments in front of it are still among them."""

    words: list[Word]
    redirects: list[Redirect]


class Group(NamedTuple):
    body: list[Step]
    subshell: bool
    redirects: list[Redirect]


class If(NamedTuple):
    branches: list[tuple[list[Step], list[Step]]]
    """Condition and body of `if` and of each `elif`."""
    otherwise: list[Step]
    redirects: list[Redirect]


class Loop(NamedTuple):
    """`for`, `select`, `while` and `until`."""

    kind: str
    name: str
    words: list[Word] | None
    condition: list[Step]
    body: list[Step]
    redirects: list[Redirect]


class Case(NamedTuple):
    subject: Word
    arms: list[tuple[list[str], list[Step]]]
    redirects: list[Redirect]


class Function(NamedTuple):
    name: str
    body: list[Step]
    line: int


Node: TypeAlias = "Simple | Group | If | Loop | Case | Function"


class Step:
    """One command of a list, and how it hangs together with those before it."""

    __slots__ = ("after", "apart", "background", "node")

    def __init__(self, node: Node, after: str = "", apart: bool = False) -> None:
        self.node = node
        self.after = after  # "&&" or "||" where it depends on the one before
        self.apart = apart  # in a pipeline or in the background: it runs in a process of its own
        self.background = False


class Script(NamedTuple):
    body: list[Step]
    comments: list[Comment]
    whole: bool = True
    """False where nesting was too deep to follow."""


_COUNTS = re.compile(
    r"(?:\(\(\s{0,8}|\blet\s{1,8}[\"']?)([A-Za-z_]\w{0,80})\s{0,8}(?:\+\+|--|[-+]=)"
    r"|\(\(\s{0,8}(?:\+\+|--)\s{0,8}([A-Za-z_]\w{0,80})"
    r"|\b([A-Za-z_]\w{0,80})=(?:\$\(\(|\$\(expr|`expr|\$\[)\s{0,8}\$?\{?\3\b"
)


def commands(steps: list[Step]) -> Iterator[Simple]:
    """The simple commands in these, inside branches and loops too."""
    for step in steps:
        node = step.node
        if isinstance(node, Simple):
            yield node
        elif isinstance(node, Group | Loop):
            yield from commands(node.body)
        elif isinstance(node, If):
            yield from commands([inner for _, body in node.branches for inner in body] + node.otherwise)
        elif isinstance(node, Case):
            yield from commands([inner for _, body in node.arms for inner in body])


def counted_up(steps: list[Step]) -> set[str]:
    """Variables that these commands count up or down: `i=$((i + 1))`, `((i++))`, `let i+=1`."""
    texts = (" ".join(word.raw for word in node.words) for node in commands(steps))
    return {name for text in texts for names in _COUNTS.findall(text) for name in names if name}


def parse(text: str, first_line: int = 1) -> Script:
    """The commands and comments of a script."""
    parser = _Parser(text, first_line)
    body: list[Step] = []
    while parser.kind != "end":
        body += parser.steps(0)
        if parser.kind != "end":
            parser.advance()  # a stray `fi` or `)`: go on behind it
    return Script(body, parser.comments, not parser.too_deep)


class _Parser(Tokens):
    """The grammar above the tokens."""

    def __init__(self, text: str, first_line: int) -> None:
        self.too_deep = False
        super().__init__(text, first_line)

    def at(self, *texts: str) -> bool:
        return self.kind in {"word", "operator"} and self.text in texts

    def at_end(self) -> bool:
        """Of a list of commands."""
        return self.kind == "end" or self.at(*_RESERVED_END)

    def skip_newlines(self) -> None:
        while self.kind == "newline" or self.at(";"):
            self.advance()

    def steps(self, depth: int) -> list[Step]:
        """Commands up to something that ends the list."""
        found: list[Step] = []
        after = ""
        piped = False
        while True:
            if not after and not piped:
                self.skip_newlines()
            while (after or piped) and self.kind == "newline":
                self.advance()
            if self.at_end():
                return found
            node = self.command(depth)
            if node is not None:
                found.append(Step(node, after, piped))
            after, piped = "", False
            if self.at("&&", "||"):
                after = self.text
                self.advance()
            elif self.at("|", "|&"):
                piped = True
                if found:
                    found[-1].apart = True
                self.advance()
            elif self.at("&"):
                if found:
                    found[-1].apart = found[-1].background = True
                self.advance()
            elif self.at(";") or self.kind == "newline" or (node is None and not self.at_end()):
                self.advance()

    def command(self, depth: int) -> Node | None:
        if depth > DEPTH_LIMIT:
            self.too_deep = True
            self.advance()
            return None
        while self.kind == "word" and self.text in {"!", "time", "coproc"}:
            self.advance()
        if self.at("("):
            if self.source.startswith("(", self.position):
                return self.arithmetic()
            return self.redirected(self.group(")", depth, subshell=True))
        if self.kind == "word":
            compound = _COMPOUND.get(self.text)
            if compound is not None:
                return compound(self, depth)
        return self.simple(depth)

    def simple(self, depth: int) -> Node | None:
        node = Simple([], [])
        while True:
            if self.kind == "word":
                if self.text == "[[" and not node.words:
                    self.double_bracket(node)
                    continue
                node.words.append(Word(self.text, self.line))
                self.advance()
                if len(node.words) == 1 and self.at("(") and re.fullmatch(r"[\w.:@+-]+", node.words[0].raw):
                    return self.function_body(node.words[0], depth)
            elif self.kind == "redirect":
                self.redirect(node.redirects)
            else:
                return node if node.words or node.redirects else None

    def redirect(self, into: list[Redirect]) -> None:
        operator = self.text.lstrip("0123456789")
        line = self.line
        self.advance()
        target = Word(self.text, self.line) if self.kind == "word" else Word("", line)
        found = Redirect(operator, target)
        into.append(found)
        if operator == "<<<":
            found.body, found.body_line = target.raw, line
        elif operator.startswith("<<"):
            self.pending.append(found)
        if self.kind == "word":
            self.advance()

    def redirected(self, node: Node) -> Node:
        while self.kind == "redirect" and not isinstance(node, Function):
            self.redirect(node.redirects)
        return node

    def arithmetic(self) -> Node:
        """`(( … ))`: a command that tests or counts."""
        line = self.line
        end = self.source.find("))", self.position)
        end = len(self.source) if end < 0 else end + 2
        text = self.source[self.position - 1 : end]
        self._move(end)
        self.advance()
        return Simple([Word("((", line), Word(text.strip("()"), line)], [])

    def double_bracket(self, node: Simple) -> None:
        """`[[ … ]]`, whose operators are none of the shell's."""
        node.words.append(Word("[[", self.line))
        end = re.compile(r"\s\]\](?=[\s;&|)]|$)").search(self.source, self.position)
        stop = end.end() if end else len(self.source)
        inner, line = self.source[self.position : end.start() if end else stop], self.here
        apart = _IN_BRACKETS.sub(lambda found: f" '{found[1]}' " if found[1] else found.group(), inner)
        node.words.extend(split_words(apart, line))
        node.words.append(Word("]]", line))
        self._move(stop)
        self.advance()

    def group(self, close: str, depth: int, *, subshell: bool) -> Group:
        self.advance()
        body = self.steps(depth + 1)
        if self.at(close):
            self.advance()
        return Group(body, subshell, [])

    def function_body(self, name: Word, depth: int) -> Node:
        while self.at("(", ")"):
            self.advance()
        while self.kind == "newline":
            self.advance()
        node = self.command(depth + 1)
        body = node.body if isinstance(node, Group) and not node.subshell else [Step(node)] if node else []
        return Function(name.raw, body, name.line)

    def braces(self, depth: int) -> Node:
        return self.redirected(self.group("}", depth, subshell=False))

    def function_word(self, depth: int) -> Node | None:
        self.advance()
        name = Word(self.text, self.line)
        self.advance()
        return self.function_body(name, depth)

    def condition(self, depth: int) -> Node:
        branches: list[tuple[list[Step], list[Step]]] = []
        otherwise: list[Step] = []
        while self.at("if", "elif"):
            self.advance()
            test = self.steps(depth + 1)
            if self.at("then"):
                self.advance()
            branches.append((test, self.steps(depth + 1)))
        if self.at("else"):
            self.advance()
            otherwise = self.steps(depth + 1)
        if self.at("fi"):
            self.advance()
        return self.redirected(If(branches, otherwise, []))

    def loop(self, depth: int) -> Node:
        kind = self.text
        self.advance()
        name, words, test = "", None, []
        if kind in {"for", "select"}:
            if self.at("("):
                self.arithmetic()
            else:
                name = self.text
                self.advance()
                words = self.loop_words()
        else:
            test = self.steps(depth + 1)
        self.skip_newlines()
        close = "}" if self.at("{") else "done"
        if self.at("do", "{"):
            self.advance()
        body = self.steps(depth + 1)
        if self.at(close):
            self.advance()
        return self.redirected(Loop(kind, name, words, test, body, []))

    def loop_words(self) -> list[Word] | None:
        while self.kind == "newline":
            self.advance()
        if not self.at("in"):
            return None
        self.advance()
        words = []
        while self.kind == "word":
            words.append(Word(self.text, self.line))
            self.advance()
        return words

    def case(self, depth: int) -> Node:
        self.advance()
        node = Case(Word(self.text, self.line), [], [])
        self.advance()
        while self.kind == "newline":
            self.advance()
        if self.at("in"):
            self.advance()
        self.skip_newlines()
        while self.kind != "end" and not self.at("esac"):
            patterns: list[str] = []
            while self.kind != "end" and not self.at(")"):
                if self.kind == "word":
                    patterns.append(self.text)
                self.advance()
            self.advance()
            node.arms.append((patterns, self.steps(depth + 1)))
            while self.at(";;", ";&", ";;&") or self.kind == "newline":
                self.advance()
            if self.at(")", "}", "fi", "done", "then", "else", "elif", "do"):
                self.advance()
        self.advance()
        return self.redirected(node)


_COMPOUND = {
    "{": _Parser.braces,
    "function": _Parser.function_word,
    "if": _Parser.condition,
    "for": _Parser.loop,
    "select": _Parser.loop,
    "while": _Parser.loop,
    "until": _Parser.loop,
    "case": _Parser.case,
}
