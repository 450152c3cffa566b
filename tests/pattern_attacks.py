"""Texts made from a regular expression to make it slow: every repeated part of it pumped, behind what leads there."""

from __future__ import annotations

import gc
import pkgutil
import re
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from whichrank.facts.required_words import Phrases
from whichrank.model.late_pattern import LatePattern

if sys.version_info >= (3, 11):
    from re import _constants as constants
    from re import _parser as parser
else:
    import sre_constants as constants
    import sre_parse as parser

REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT, getattr(constants, "POSSESSIVE_REPEAT", None))
CATEGORIES = {
    constants.CATEGORY_DIGIT: "7",
    constants.CATEGORY_SPACE: " ",
    constants.CATEGORY_WORD: "a",
    constants.CATEGORY_NOT_DIGIT: "a",
    constants.CATEGORY_NOT_SPACE: "a",
    constants.CATEGORY_NOT_WORD: ":",
}
COMMON = ("a", " ", "0", "a ", "0.", "1:", "/a", "rank 0 ", "[0] ", "\n", "a\n", "\t", "=", "a=", "-", '"')


class Slow(Exception):  # noqa: N818 - a finding, not an error
    """A search took more CPU than it may."""


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raises `Slow` in a search that goes on for longer; by CPU, so that a busy machine changes nothing."""

    def too_long(*_: object) -> None:
        raise Slow

    before = signal.signal(signal.SIGVTALRM, too_long)
    gc.disable()  # what is raised in a callback of the collector does not reach the search
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        gc.enable()


def sample(tree: Any) -> str:
    """A short text that this part of an expression matches, about."""
    return "".join(_one(op, value) for op, value in tree)


def _one(op: Any, value: Any) -> str:
    if op is constants.LITERAL:
        return chr(value)
    if op is constants.NOT_LITERAL:
        return "b" if value == ord("a") else "a"
    if op is constants.ANY:
        return "a"
    if op is constants.IN:
        return _member(value)
    if op is constants.BRANCH:
        return sample(value[1][0])
    if op is constants.SUBPATTERN:
        return sample(value[-1])
    if op in REPEATS:
        return sample(value[2]) * max(value[0], min(1, value[1]))
    return sample(value) if op == getattr(constants, "ATOMIC_GROUP", None) else ""


def _member(items: Any) -> str:
    op, value = items[0]
    if op is constants.NEGATE:
        taken = {chr(v) for o, v in items[1:] if o is constants.LITERAL}
        return next(letter for letter in "ab0:;x~ é" if letter not in taken)
    if op is constants.RANGE:
        return chr(value[0])
    return CATEGORIES.get(value, "a") if op is constants.CATEGORY else chr(value)


def pumps(tree: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """What leads to a repeated part, and the part."""
    for op, value in tree:
        if op in REPEATS:
            inner = sample(value[2])
            if value[1] > 3 and inner:
                yield before, inner
            yield from pumps(value[2], before)
        elif op is constants.SUBPATTERN:
            yield from pumps(value[-1], before)
        elif op is constants.BRANCH:
            for branch in value[1]:
                yield from pumps(branch, before)
        before += _one(op, value)


@lru_cache(1)
def _tree(pattern: re.Pattern[Any]) -> Any:
    return parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)


@lru_cache(1)
def _pumps(pattern: re.Pattern[Any]) -> list[tuple[str, str]]:
    return list(pumps(_tree(pattern)))


def attacks(pattern: re.Pattern[Any], fragments: tuple[str, ...] = COMMON) -> Iterator[str]:
    """Pieces to repeat: the parts of the pattern, alone and with what leads to them, and fragments of real text."""
    whole = sample(_tree(pattern))
    yield whole
    yield whole[:-1]
    for lead, pump in _pumps(pattern):
        yield pump
        yield lead + pump
    yield from (lead + fragment for lead in (whole, "") for fragment in fragments[:4])


def texts(pattern: re.Pattern[Any], size: int, fragments: tuple[str, ...] = ()) -> Iterator[Any]:
    """Texts of so many letters, as the pattern takes them."""
    made = [piece * (size // len(piece) + 1) for piece in dict.fromkeys(attacks(pattern)) if piece]
    made += [lead + pump * (size // len(pump)) for lead, pump in _pumps(pattern) if lead]
    made += [fragment * (size // len(fragment) + 1) for fragment in fragments]
    for text in dict.fromkeys(made):
        ended = text[:size] + "\x01"
        yield ended.encode("utf-8", "replace") if isinstance(pattern.pattern, bytes) else ended


def patterns(*packages: str) -> dict[str, re.Pattern[Any]]:
    """Every compiled expression at the top of the modules of these packages, in tables too, by where it stands."""
    found: dict[str, re.Pattern[Any]] = {}
    for package in packages:
        module = import_module(package)
        names = [package]
        if hasattr(module, "__path__"):
            names += [info.name for info in pkgutil.walk_packages(module.__path__, package + ".")]
        for name in names:
            for attribute, value in vars(import_module(name)).items():
                for number, pattern in enumerate(_inside(value)):
                    found.setdefault(f"{name}.{attribute}[{number}]", pattern)
    unique = {(pattern.pattern, pattern.flags): (where, pattern) for where, pattern in reversed(found.items())}
    return dict(reversed(list(unique.values())))


def way(where: str, pattern: re.Pattern[Any]) -> Any:
    """How the pattern is used: only from the beginning of a text, where nothing in its package searches with it."""
    module, _, attribute = where.rpartition("[")[0].rpartition(".")
    file = Path(str(import_module(module).__file__))
    uses = _uses(file).get(attribute, set()) if attribute.startswith("_") else _uses_below(file.parents[1])[attribute]
    if uses and uses <= {"match", "fullmatch"}:
        return pattern.match if "match" in uses else pattern.fullmatch
    return pattern.search


@cache
def _uses(file: Path) -> dict[str, set[str]]:
    """By name the methods that a file calls on it."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, method in re.findall(r"\b(\w+)\.(\w+)\(", file.read_text(encoding="utf-8")):
        found[name].add(method)
    return found


@cache
def _uses_below(folder: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for file in sorted(folder.rglob("*.py")):
        for name, methods in _uses(file).items():
            found[name] |= methods
    return found


def _inside(value: Any, depth: int = 3) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, LatePattern):
        yield re.compile(value.pattern, value.flags)
    elif isinstance(value, Phrases):
        yield value.whole
    elif depth and isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _inside(item, depth - 1)
    elif depth and isinstance(value, dict):
        yield from _inside(list(value.items()), depth - 1)


def slow(search: Any, made: Iterator[Any], limit_s: float) -> str | None:
    """The beginning of the first text on which the search takes too long."""
    for text in made:
        try:
            with cpu_limit(limit_s):
                search(text)
        except Slow:
            return repr(text[:60])
    return None
