"""The known name that an unknown one most likely means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from typing import TypeAlias

from whichrank.facts.variables.environment import catalogue, renames

Names: TypeAlias = Callable[[], Mapping[str, object]]


def nearest(name: str, limit: int = 3, among: Names = catalogue) -> str:
    """The known name that this one most likely means, or nothing.

    Edit distance (neighbouring letters may swap places) of at most `limit` and of a quarter of the name.
    The same letters in another order count as one edit, as does a name with a word left out.
    """
    limit = min(limit, max(1, len(name) // 4))
    pairs, letters = _pairs(name), name.replace("_", "")
    shuffled = sorted(letters)
    best, best_cost = _with_a_word_more(name, among), limit
    for known, (known_pairs, known_letters) in _shapes(among).items():
        if len(known_letters) == len(letters) and sorted(known_letters) == shuffled:
            return _today(known)
        # An edit destroys at most two pairs of neighbouring letters, a swap three; more than one swap is no slip.
        if abs(len(known) - len(name)) > best_cost or len(pairs & known_pairs) < len(pairs) - 2 * best_cost - 1:
            continue
        cost = _distance(name, known, best_cost)
        if cost < best_cost or (cost == best_cost and not best):
            best, best_cost = known, cost
    return _today(best)


def _today(name: str) -> str:
    """The present name of a setting: a suggestion should last."""
    rename = renames().get(name)
    return rename.new if rename and rename.new and rename.since < (2, 13) else name


def _pairs(name: str) -> frozenset[tuple[str, str]]:
    return frozenset(pairwise(name))


@cache
def _shapes(among: Names) -> dict[str, tuple[frozenset[tuple[str, str]], str]]:
    return {name: (_pairs(name), name.replace("_", "")) for name in among()}


@cache
def _worded(among: Names) -> list[tuple[str, frozenset[str]]]:
    return [(name, frozenset(name.split("_"))) for name in among()]


def _with_a_word_more(name: str, among: Names) -> str:
    """The one known name of the same family that has all words of this one and one more."""
    words = frozenset(name.split("_"))
    longer = [
        known for known, known_words in _worded(among) if len(known_words) == len(words) + 1 and words < known_words
    ]
    return longer[0] if len(longer) == 1 and len(words) > 1 else ""


def _distance(a: str, b: str, limit: int) -> int:
    """Damerau-Levenshtein distance, given up above `limit`."""
    while a and b and a[0] == b[0]:
        a, b = a[1:], b[1:]
    while a and b and a[-1] == b[-1]:
        a, b = a[:-1], b[:-1]
    before: list[int] = []
    previous = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        current = [i]
        for j, right in enumerate(b, 1):
            cost = min(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (left != right))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                cost = min(cost, before[j - 2] + 1)
            current.append(cost)
        if min(current) > limit:
            return limit + 1
        before, previous = previous, current
    return previous[-1]
