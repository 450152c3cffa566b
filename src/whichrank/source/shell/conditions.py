"""Tests whose outcome the script itself fixes: `if false`, `[ "$FLAG" = 1 ]` after FLAG=0."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from whichrank.records.settings import UNKNOWN
from whichrank.source.shell.syntax import Simple, Step
from whichrank.source.shell.words import Lookup, Value, expand

_NUMBERS = {
    "-eq": lambda a, b: a == b, "-ne": lambda a, b: a != b, "-lt": lambda a, b: a < b, "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b, "-ge": lambda a, b: a >= b,
}  # fmt: skip


_SUM = re.compile(r"\s{0,8}\$?\{?(\w{1,80}|#)(?::?-(\w{1,12}))?\}?\s{0,8}(?:(==|!=|>=|<=|>|<)\s{0,8}(\d{1,9}))?\s{0,8}")
_SIGNS = {"==": "-eq", "!=": "-ne", ">=": "-ge", "<=": "-le", ">": "-gt", "<": "-lt"}


def truth(test: list[Step], lookup: Lookup, *, usual: bool = False) -> bool | None:
    """Whether a condition holds; None where that depends on the run.

    Usual: defaults (`${X:-0}`) count as what the variables hold.
    """
    if len(test) != 1 or not isinstance(test[0].node, Simple):
        return None
    words = [word.raw for word in test[0].node.words] or [""]
    if len(words) == 1 and words[0].startswith(("$", '"$')):
        made = expand(words[0], lookup)
        words = [made.text] if made.fixed or usual else words
    if words == ["false"]:
        return False
    if words in (["true"], [":"]):
        return True
    if words[0] in {"((", "let"} and len(words) == 2 and words[1].strip().isdecimal():
        return int(words[1]) != 0
    if words[0] == "((" and len(words) == 2 and usual:
        return _sum(words[1], lookup)
    if words[0] in {"[", "[[", "test"}:
        inner = [w for w in words[1:] if w not in {"]", "]]"}]
        patterns = words[0] == "[["
        return _usual_test(inner, lookup, patterns) if usual else _test(inner, lookup, patterns=patterns)
    return None


def _sum(text: str, lookup: Lookup) -> bool | None:
    """`(( DEBUG ))`, `(( ${LEVEL:-0} > 1 ))`."""
    match = _SUM.fullmatch(text)
    if match is None:
        return None
    name, default, sign, right = match.groups()
    value = Value(name) if name.isdecimal() else lookup(name)
    left = (value.text or default or "0") if value is not None else UNKNOWN
    if not re.fullmatch(r"\d{1,12}", left):
        return None
    return bool(_NUMBERS[_SIGNS[sign]](int(left), int(right))) if sign else int(left) != 0


def _usual_test(words: list[str], lookup: Lookup, patterns: bool) -> bool | None:
    """A test of which defaults count as what the variables hold."""
    for operator in ("||", "&&"):
        if operator in words:
            at = words.index(operator)
            parts = [_usual_test(part, lookup, patterns) for part in (words[:at], words[at + 1 :])]
            return together(operator, *parts)
    if words[:1] == ["!"]:
        inner = _usual_test(words[1:], lookup, patterns)
        return None if inner is None else not inner
    if len(words) == 2 and words[0] == "-v":
        value = lookup(words[1])
        return None if value is None else bool(value.text)
    if len(words) == 3 and words[1] == "=~":
        return None if expand(words[0], lookup).text else False
    return _test(words, lookup, patterns=patterns, defaults=True)


def together(operator: str, left: bool | None, right: bool | None) -> bool | None:
    """`left && right`, `left || right`."""
    settles = operator == "||"
    if settles in (left, right):
        return settles
    return None if None in (left, right) else not settles


def _test(words: list[str], lookup: Lookup, *, patterns: bool, defaults: bool = False) -> bool | None:
    if words[:1] == ["!"]:
        inner = _test(words[1:], lookup, patterns=patterns)
        return None if inner is None else not inner
    values = [expand(word, lookup) for word in words]
    if any((not value.fixed and not defaults) or UNKNOWN in value.text for value in values):
        return None
    texts = [value.text for value in values]
    if len(texts) == 1:
        return bool(texts[0])
    if len(texts) == 2 and texts[0] in {"-n", "-z"}:
        return bool(texts[1]) is (texts[0] == "-n")
    if len(texts) != 3:
        return None
    left, operator, right = texts
    if operator in {"=", "==", "!="}:
        same = fnmatchcase(left, right) if patterns and words[2][:1] not in {'"', "'"} else left == right
        return same is (operator != "!=")
    if operator in _NUMBERS and re.fullmatch(r"-?\d{1,12}", left) and re.fullmatch(r"-?\d{1,12}", right):
        return bool(_NUMBERS[operator](int(left), int(right)))
    return None
