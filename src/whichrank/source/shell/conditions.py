"""Tests whose outcome the script itself fixes: `if false`, `[ "$FLAG" = 1 ]` after FLAG=0."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from whichrank.records.settings import UNKNOWN
from whichrank.source.shell.syntax import Simple, Step
from whichrank.source.shell.words import Lookup, expand

_NUMBERS = {
    "-eq": lambda a, b: a == b, "-ne": lambda a, b: a != b, "-lt": lambda a, b: a < b, "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b, "-ge": lambda a, b: a >= b,
}  # fmt: skip


def truth(test: list[Step], lookup: Lookup) -> bool | None:
    """Whether a condition holds; None where that depends on the run."""
    if len(test) != 1 or not isinstance(test[0].node, Simple):
        return None
    words = [word.raw for word in test[0].node.words]
    if not words:
        return None
    if len(words) == 1 and words[0].startswith(("$", '"$')):
        made = expand(words[0], lookup)
        words = [made.text] if made.fixed else words
    if words == ["false"]:
        return False
    if words in (["true"], [":"]):
        return True
    if words[0] in {"((", "let"} and len(words) == 2 and words[1].strip().isdecimal():
        return int(words[1]) != 0
    if words[0] in {"[", "[[", "test"}:
        inner = [w for w in words[1:] if w not in {"]", "]]"}]
        return _test(inner, lookup, patterns=words[0] == "[[")
    return None


def _test(words: list[str], lookup: Lookup, *, patterns: bool) -> bool | None:
    if words[:1] == ["!"]:
        inner = _test(words[1:], lookup, patterns=patterns)
        return None if inner is None else not inner
    values = [expand(word, lookup) for word in words]
    if any(not value.fixed or UNKNOWN in value.text for value in values):
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
