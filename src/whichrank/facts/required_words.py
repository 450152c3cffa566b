"""Words that a text must hold for a pattern to match: a quick look before a slow search.

Python tries a pattern of many branches at every letter; whether a word stands in a text it knows fifty times as fast.
The words come from the pattern itself: of letters that follow each other the run, of branches one run each.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from importlib import import_module
from typing import Any

_parser: Any = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")

Clause = frozenset[str]
"""In lower case: at least one of these stands in the text."""
_SHORTEST = 2
"""A single letter tells nothing."""
_NO_ROOM = ("AT", "ASSERT", "ASSERT_NOT")
"""Parts between letters that are neighbours all the same."""
_MOST_WORDS, _MOST_CLAUSES = 40, 3
_MOST_CHOICES = 256
_NOTHING = re.compile(r"(?!)")
_LONGEST = 4096
"""Of a longer text the lower case costs more than it saves."""


@cache
def alternatives(pattern: str) -> tuple[tuple[Clause, ...], ...]:
    """For every branch of the pattern what must stand in a text, all of it, the rarest first.

    Nothing at all where a branch demands no words."""
    found = [sorted(set(_of_sequence(branch)), key=_common)[:_MOST_CLAUSES] for branch in _branches(pattern)]
    return tuple(map(tuple, found)) if all(found) else ()


def may_match(pattern: str, text: str) -> bool:
    """False only where a search for the pattern would find nothing."""
    wanted = alternatives(pattern) if len(text) <= _LONGEST else ()
    return not wanted or _has_words(wanted, text.lower())


def search(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """What the pattern finds, without a search where its words are not in the text."""
    return pattern.search(text) if may_match(pattern.pattern, text) else None


def _has_words(wanted: Sequence[Sequence[Clause]], lower: str) -> bool:
    """Whether all that one of the branches demands stands in the text."""
    has = lower.__contains__
    for branch in wanted:
        for words in branch:
            if not any(map(has, words)):
                break
        else:
            return True
    return False


class Phrases:
    """A pattern of many phrases, in any case; those are searched whose words stand in the text, and find the same."""

    def __init__(self, *phrases: str) -> None:
        self._phrases = phrases
        self._some: dict[tuple[str, ...], re.Pattern[str]] = {}

    @cached_property
    def whole(self) -> re.Pattern[str]:
        return _any_of(self._phrases)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        if len(text) > _LONGEST:
            return self.whole.finditer(text)
        lower = text.lower()
        phrases = tuple(p for p in self._phrases if not (wanted := alternatives(p)) or _has_words(wanted, lower))
        shape = self._some.get(phrases)
        if shape is None:
            shape = _any_of(phrases) if phrases else _NOTHING
            if len(self._some) < _MOST_CHOICES:
                self._some[phrases] = shape
        return shape.finditer(text)


def _any_of(phrases: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(phrases), re.IGNORECASE)


def _branches(pattern: str) -> list[Any]:
    """The branches of a pattern that is nothing but branches, or the whole of it."""
    parts = _parser.parse(pattern)
    while len(solid := [part for part in parts if str(part[0]) not in _NO_ROOM]) == 1:
        kind, value = solid[0]
        if str(kind) == "BRANCH":
            return list(value[1])
        if str(kind) != "SUBPATTERN":
            break
        parts = value[-1]
    return [parts]


def _common(words: Clause) -> tuple[int, int, list[str]]:
    """How likely a text has one of the words: few long ones are rare."""
    return -min(map(len, words)), len(words), sorted(words)


def _of_sequence(parts: Any) -> list[Clause]:
    """The clauses of parts that all must match."""
    found: list[Clause] = []
    run = ""
    for kind, value in [*parts, (None, None)]:
        name = str(kind)
        letter = _letter(name, value)
        if letter:
            run += letter
        elif name not in _NO_ROOM:
            if len(run) >= _SHORTEST:
                found.append(frozenset([run]))
            run = ""
            found += _of_part(name, value)
    return found


def _letter(name: str, value: Any) -> str:
    """The one letter that this part stands for, but for case."""
    if name == "LITERAL":
        return _lower([value])
    if name == "IN" and all(str(kind) == "LITERAL" for kind, _ in value):
        return _lower([code for _, code in value])
    return ""


def _lower(codes: Sequence[int]) -> str:
    """Only of plain letters: others may change their length, or match letters that look otherwise."""
    letters = {chr(code).lower() for code in codes if code < 128}
    return letters.pop() if len(letters) == 1 and all(code < 128 for code in codes) else ""


def _of_part(name: str, value: Any) -> list[Clause]:
    if name == "SUBPATTERN":
        return _of_sequence(value[-1])
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _of_sequence(value[2]) if value[0] else []
    if name == "ATOMIC_GROUP":
        return _of_sequence(value)
    if name == "BRANCH":
        return _of_branches([_of_sequence(branch) for branch in value[1]])
    return []


def _of_branches(branches: Sequence[list[Clause]]) -> list[Clause]:
    """One clause with the rarest words of every branch."""
    if not all(branches):
        return []
    words = frozenset[str]().union(*(min(of, key=_common) for of in branches))
    return [words] if len(words) <= _MOST_WORDS else []
