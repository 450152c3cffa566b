"""What a word of the shell stands for: quotes taken off, variables that the script itself sets put in."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from whichrank.records.settings import UNKNOWN
from whichrank.source.places import own_values
from whichrank.source.shell import host_lists
from whichrank.source.shell.tokens import Word, split_words
from whichrank.source.shell.values import braces, sums

LONGEST = 1 << 17
"""Linux starts no program with a longer argument or variable."""
MOST_FIELDS = 4096
OUTPUT_OF = "output of "
"""In front of a command: the name (no variable is called so) under which what it prints is known."""
_RUN = re.compile(r"[^\\'\"`$]+")
_IN_DOUBLE = re.compile(r"[^\\\"`$]+")
_NAME = re.compile(r"\$(?:([A-Za-z_]\w*)|([0-9@*#?$!-]))")
_BRACED = r"(?s)" r"([!#]?)([A-Za-z_]\w*|[0-9@*#?$!-])(\[(?:[^\]]*)\])?(.*)"
_OPERATOR = r":?[-=+?]|##?|%%?|//?|\^\^?|,,?|:|@"


class Piece(NamedTuple):
    """A part of a word: text as it is, or something that is put in its place."""

    kind: str
    """"text", "variable", "command" (a substitution, with its text) or "other"."""
    text: str
    quoted: bool
    operator: str = ""
    argument: str = ""
    subscript: str = ""
    """`@`, `*` or a key of an array."""
    source: str = ""


class Value(NamedTuple):
    """What a variable holds: a text (UNKNOWN where parts of it are not known), or the elements of an array."""

    text: str
    fixed: bool = True
    """False where the environment of the user may hold something else (`${X:-default}`)."""
    items: tuple[Word, ...] | None = None
    keys: tuple[str, ...] = ()
    line: int = 0
    usual: str | None = None
    """What it holds where nobody asks for something else, if that is known and the text is not."""


class Field(NamedTuple):
    """One argument of a command after expansion."""

    text: str
    line: int
    raw: str = ""
    fixed: bool = True

    @property
    def known(self) -> bool:
        return UNKNOWN not in self.text


Lookup = Callable[[str], Value | None]


@lru_cache(maxsize=4096)
def pieces(raw: str) -> tuple[Piece, ...]:
    """A word taken apart."""
    found: list[Piece] = []
    _scan(raw, 0, quoted=False, found=found)
    return tuple(found)


def _scan(raw: str, index: int, *, quoted: bool, found: list[Piece]) -> int:
    run = _IN_DOUBLE if quoted else _RUN
    while index < len(raw):
        if plain := run.match(raw, index):
            found.append(Piece("text", plain.group(), quoted))
            index = plain.end()
            continue
        char = raw[index]
        if char == '"':
            if quoted:
                return index + 1
            found.append(Piece("text", "", True))
            index = _scan(raw, index + 1, quoted=True, found=found)
        elif char == "'":
            end = raw.find("'", index + 1)
            end = len(raw) if end < 0 else end
            found.append(Piece("text", raw[index + 1 : end], True))
            index = end + 1
        elif char == "\\":
            index = _escaped(raw, index, quoted, found)
        else:
            index = _dollar(raw, index, quoted, found)
    return index


def _escaped(raw: str, index: int, quoted: bool, found: list[Piece]) -> int:
    following = raw[index + 1 : index + 2]
    if following == "\n":
        found.append(Piece("text", "", True, source="\\\n"))  # nothing, but texts keep their lines
    if following not in {"\n", "\r"} and (not quoted or following in set('\\"$`')):
        found.append(Piece("text", following, True))
    elif following not in {"\n", "\r"}:
        found.append(Piece("text", "\\" + following, True))
    return index + 2


def _dollar(raw: str, index: int, quoted: bool, found: list[Piece]) -> int:
    if raw[index] == "`":
        end = raw.find("`", index + 1)
        end = len(raw) if end < 0 else end
        found.append(Piece("command", raw[index + 1 : end], quoted, source=raw[index : end + 1]))
        return end + 1
    if raw.startswith(("$'", '$"'), index) and not quoted:
        return index + 1
    if raw.startswith("$((", index):
        end = _closing_sum(raw, index)
        found.append(Piece("other", raw[index:end], quoted, source=raw[index:end]))
        return end
    if raw.startswith(("$(", "${"), index):
        end = _closing(raw, index)
        inner = raw[index + 2 : end - 1]
        if raw[index + 1] == "(":
            found.append(Piece("command", inner, quoted, source=raw[index:end]))
        else:
            found.append(_braced(inner, quoted, raw[index:end]))
        return end
    if name := _NAME.match(raw, index):
        found.append(Piece("variable", name[1] or name[2], quoted, source=name.group()))
        return name.end()
    found.append(Piece("text", raw[index], quoted))
    return index + 1


_LONGEST_SUM = 400


def _closing_sum(raw: str, index: int) -> int:
    """Behind the brackets that close the `$((` at index; those inside are counted."""
    depth = 0
    for at in range(index + 1, min(len(raw), index + _LONGEST_SUM)):
        depth += (raw[at] == "(") - (raw[at] == ")")
        if depth == 0:
            return at + 1
    close = raw.find("))", index)
    return close + 2 if close >= 0 else len(raw)


def _closing(raw: str, index: int) -> int:
    """Behind the bracket that closes the one at index + 1."""
    opener = raw[index + 1]
    closers, at = [")" if opener == "(" else "}"], index + 2
    while at < len(raw) and closers:
        char = raw[at]
        if char == "\\":
            at += 1
        elif char == "'" and closers[-1] == ")":
            end = raw.find("'", at + 1)
            at = len(raw) if end < 0 else end
        elif char == '"':
            closers.pop() if closers[-1] == '"' else closers.append('"')
        elif char == "$" and raw[at + 1 : at + 2] in {"(", "{"}:
            closers.append(")" if raw[at + 1] == "(" else "}")
            at += 1
        elif char == closers[-1]:
            closers.pop()
        elif char == "(" and closers[-1] == ")":
            closers.append(")")
        at += 1
    return at


def _braced(inner: str, quoted: bool, source: str) -> Piece:
    match = re.fullmatch(_BRACED, inner)
    if not match:
        return Piece("other", inner, quoted, source=source)
    prefix, name, index, rest = match.groups()
    if prefix == "#":
        return Piece("other", inner, quoted, source=source)
    operator = re.match(_OPERATOR, rest)
    sign = operator.group() if operator else ""
    subscript = (index or "")[1:-1]
    return Piece("variable", name, quoted, prefix + sign, rest[len(sign) :], subscript, source)


_AT_HOME = re.compile(r"((?:[A-Za-z_]\w{0,80}=)?)~(?=/|$)")


def at_home(raw: str) -> str:
    """The word with what the shell makes of an unquoted `~` at its beginning, or behind the = of an assignment."""
    found = _AT_HOME.match(raw)
    return f"{found[1]}${{HOME}}{raw[found.end() :]}" if found else raw


def fields(word: Word, lookup: Lookup) -> list[Field]:
    """The arguments that a word becomes: unquoted variables split at blanks, arrays become their elements."""
    raw = at_home(word.raw) if "=~" in word.raw else word.raw
    parts = pieces(raw)
    if all(part.kind == "text" for part in parts):
        return [Field("".join(part.text for part in parts), word.line, word.raw)]
    if len(parts) - sum(part == Piece("text", "", True) for part in parts) == 1:
        only = next(part for part in parts if part != Piece("text", "", True))
        array = _elements(only, lookup)
        if array is not None:
            return array
    made = expand(raw, lookup)
    line = word.line if "\n" in raw else _origin(parts, lookup) or word.line
    splits = any(part.kind in {"variable", "command"} and not part.quoted for part in parts)
    if splits and re.search(r"\s", made.text) and not any(part.quoted for part in parts):
        return [Field(text, line, word.raw, made.fixed) for text in made.text.split()]
    return [Field(made.text, line, word.raw, made.fixed)]


def _elements(part: Piece, lookup: Lookup) -> list[Field] | None:
    whole = part.subscript in {"@", "*"} or (part.text in {"@", "*"} and not part.operator)
    value = lookup("@" if part.text == "*" else part.text) if part.kind == "variable" and whole else None
    if value is None or value.items is None:
        return None
    if part.operator.startswith("!"):
        if not value.keys and any(_of_any_length(item.raw, lookup) for item in value.items):
            return [Field(UNKNOWN, value.line, part.source, fixed=False)]
        keys = value.keys or [str(index) for index in range(len(value.items))]
        return [Field(key, value.line, key) for key in keys]
    return list(islice((field for item in value.items for field in fields(item, lookup)), MOST_FIELDS))


def _of_any_length(raw: str, lookup: Lookup) -> bool:
    """An element that becomes several, nobody knows how many: `( $(cat hosts) )`, `( ${HOSTS[*]} )`."""
    return any(
        part.kind in {"variable", "command"} and not part.quoted and UNKNOWN in expand(part.source, lookup).text
        for part in pieces(raw)
    )


def _origin(parts: tuple[Piece, ...], lookup: Lookup) -> int:
    """The line that the first variable of a name comes from: the list of a loop, the call of a function."""
    for part in parts:
        if part.kind == "text" and "=" not in part.text:
            continue
        value = lookup(part.text) if part.kind == "variable" else None
        return value.line if value is not None else 0
    return 0


def expand(raw: str, lookup: Lookup) -> Value:
    """The text of a word, without splitting it."""
    out: list[str] = []
    fixed = True
    line = 0
    for part in pieces(raw):
        if part.kind == "text":
            out.append(part.text)
            continue
        value = _put_in(part, lookup) if part.kind == "variable" else _printed(part, lookup)
        out.append(UNKNOWN if value is None else value.text)
        fixed = fixed and value is not None and value.fixed
        line = value.line if value is not None and not any(out[:-1]) else 0
    return Value("".join(out), fixed, line=line) if _fits(out) else Value(UNKNOWN, fixed=False)


def _fits(parts: list[str]) -> bool:
    """Whether this can be one argument or variable; `A=$A$A` doubles with every line."""
    return sum(map(len, parts)) <= LONGEST


def _put_in(part: Piece, lookup: Lookup) -> Value | None:
    value = lookup(part.text)
    operator = part.operator.lstrip("!")
    if part.operator.startswith("!"):
        named = value.text if value is not None and not part.subscript else ""
        return _put_in(part._replace(text=named, operator=operator), lookup) if named.isidentifier() else None
    if part.subscript:
        return _subscript(part, value, lookup)
    if value is not None and value.items is not None:
        value = Value(value.items[0].raw if value.items else "")
    if operator in {":-", "-", ":=", "="}:
        if value is not None and UNKNOWN not in value.text and (value.text or operator in {"-", "="}):
            return value
        return expand(part.argument, lookup)._replace(fixed=False)
    if operator in {":?", "?", ""} or value is None:
        return value
    if operator in {":+", "+"} and UNKNOWN not in value.text:
        return expand(part.argument if value.text else "", lookup)._replace(fixed=False)
    if UNKNOWN not in value.text and (short := braces.shortened(value.text, operator, part.argument)) is not None:
        return value._replace(text=short)
    cases = {"^^": value.text.upper(), ",,": value.text.lower()}
    return value._replace(text=cases[operator]) if operator in cases else None


def _subscript(part: Piece, value: Value | None, lookup: Lookup) -> Value | None:
    if value is None or value.items is None:
        return None
    if part.subscript in {"@", "*"}:
        texts = [expand(item.raw, lookup).text for item in value.items[:MOST_FIELDS]]
        return Value(" ".join(texts), line=value.line) if _fits(texts) else Value(UNKNOWN, fixed=False)
    key = expand(part.subscript, lookup).text
    if value.keys:
        found = next((i for k, i in zip(value.keys, value.items, strict=False) if k == key), None)
        return expand(found.raw, lookup) if found else None
    if key.isdecimal() and len(key) < 6 and int(key) < len(value.items):
        return expand(value.items[int(key)].raw, lookup)
    return None


_ECHO = r"(?s)" r"\s*(?:echo|printf)\s+(?:-n\s+|(['\"])%s(?:\\n)?\1\s+)?(\S+|\"[^\"$`]*\"|'[^']*')\s*"


def _printed(part: Piece, lookup: Lookup) -> Value | None:
    """`$(echo text)` is the text, `${#list[@]}` the length of a list; what most commands print is not known."""
    if part.kind == "other" and part.text.startswith("$(("):
        found = sums.computed(part.text, lookup)
        return Value(*found) if found is not None else None
    if part.kind == "other":
        counted = re.fullmatch(r"#(\w+)\[[@*]\]", part.text)
        return _length(lookup(counted[1]), lookup) if counted else None
    if part.kind == "command" and (file := host_lists.counted(part.text)):
        return lookup(host_lists.LINES_OF + file)
    if part.kind == "command" and (known := lookup(OUTPUT_OF + part.text.strip())) is not None:
        return known
    match = re.fullmatch(_ECHO, part.text) if part.kind == "command" else None
    return expand(match[2], lookup) if match else None


def _length(value: Value | None, lookup: Lookup) -> Value | None:
    items = value.items if value is not None else None
    if value is None or items is None:
        return None
    if len(items) == 1 and (file := host_lists.whole(items[0].raw)):
        return lookup(host_lists.LINES_OF + file)
    if any(re.search(r"[$`*?{]", item.raw) for item in items):
        return None
    return Value(str(len(set(value.keys)) if value.keys else len(items)))


def keep_unknown(raw: str, lookup: Lookup, *, here: bool = False) -> str:
    """A script inside a word, as the inner shell gets it: known variables put in, unknown ones left standing.

    Here: the host that began the script reads the word, and puts in its own name and what it draws at random."""
    out = []
    for part in pieces(raw):
        if part.kind == "text":
            out.append(part.text or part.source)
        else:
            value = _put_in(part, lookup) if part.kind == "variable" else None
            made = part.kind == "command" and lookup(OUTPUT_OF + part.text.strip()) is not None
            value = _printed(part, lookup) if part.kind == "other" or made else value
            known = value is not None and bool(value.text.strip(UNKNOWN) or not value.text)
            if here and not known and own_values.differs(part.source):
                value, known = Value(UNKNOWN), True
            out.append(value.text.replace(UNKNOWN, "${UNKNOWN}") if known and value is not None else part.source)
    return "".join(out) if _fits(out) else raw


def array(raw: str, line: int) -> tuple[tuple[Word, ...], tuple[str, ...]]:
    """The elements of `( a b )` or `( [k]=v )`, and the keys of the latter."""
    items = split_words(raw.strip()[1:].removesuffix(")"), line)
    keyed = [re.fullmatch(r"\[([^\]]*)\]=(.*)", item.raw, re.DOTALL) for item in items]
    if items and all(keyed):
        return (
            tuple(Word(m[2], item.line) for m, item in zip(keyed, items, strict=True) if m),
            tuple(m[1].strip("\"'") for m in keyed if m),
        )
    made = (Word(raw, item.line) for item in items for raw in braces.expanded(item.raw))
    return tuple(islice(made, MOST_FIELDS)), ()
