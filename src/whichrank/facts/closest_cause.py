"""Which known causes a text comes closest to, by its words: what is left where no message, dump or stack tells.

Every cause has passages: its meaning, its fix, and each of its known messages with examples. A line of the text is as
close to a cause as its words are rare among the causes and frequent in one of the cause's passages (BM25). Lines that
are close to one passage count more than many that are a little close to all.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from math import log
from typing import NamedTuple

from whichrank.facts import site
from whichrank.facts.fixes import fix
from whichrank.facts.messages import built_in
from whichrank.facts.taxonomy import causes

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{2,60}|\d{3,5}\b")
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_ENDINGS = ("ing", "ed", "es", "s")
_SATURATION, _BY_LENGTH = 1.2, 0.5
_LONGEST, MOST_LINES = 600, 400


class Closeness(NamedTuple):
    """How close the text is to a cause, and the number of the line that is closest."""

    cause: str
    score: float
    line: int


def closest(lines: Iterable[tuple[int, str]]) -> list[Closeness]:
    """The causes that lines (with their numbers) come close to, the closest first."""
    totals: dict[str, float] = defaultdict(float)
    best: dict[str, tuple[float, int]] = {}
    for taken, (number, line) in enumerate(lines):
        if taken >= MOST_LINES:
            break
        for cause, score in _of_line(line).items():
            totals[cause] += score * score
            best[cause] = max(best.get(cause, (0.0, 0)), (score, -number))
    ranked = sorted(totals.items(), key=lambda pair: (-pair[1], pair[0]))
    return [Closeness(cause, score, -best[cause][1]) for cause, score in ranked]


def _of_line(line: str) -> dict[str, float]:
    owners, postings = _index()
    scores: dict[int, float] = defaultdict(float)
    for word in set(_words(line[:_LONGEST])):
        for passage, weight in postings.get(word, ()):
            scores[passage] += weight
    found: dict[str, float] = {}
    for passage, score in scores.items():
        found[owners[passage]] = max(found.get(owners[passage], 0.0), score)
    return found


@cache
def _index() -> tuple[list[str], dict[str, list[tuple[int, float]]]]:
    """The cause of every passage, and for every word its weight in the passages that have it."""
    passages = [(cause, Counter(_words(text))) for cause, text in _passages()]
    having: dict[str, set[str]] = defaultdict(set)
    for cause, words in passages:
        for word in words:
            having[word].add(cause)
    known = len({cause for cause, _ in passages})
    rarity = {word: log(1 + (known - len(of) + 0.5) / (len(of) + 0.5)) for word, of in having.items()}
    typical = sum(words.total() for _, words in passages) / len(passages)
    postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for at, (_, words) in enumerate(passages):
        damped = _SATURATION * (1 - _BY_LENGTH + _BY_LENGTH * words.total() / typical)
        for word, count in words.items():
            postings[word].append((at, rarity[word] * count * (_SATURATION + 1) / (count + damped)))
    return [cause for cause, _ in passages], postings


def _passages() -> Iterator[tuple[str, str]]:
    of_site = {row["cause"] for row in site.added_causes()}  # their own rules know when they are meant
    for name, cause in causes().items():
        if name not in ("healthy", "unknown") and name not in of_site:
            yield name, f"{name.replace('-', ' ')} {cause.meaning}"
            yield name, " ".join(fix(name))
    for message in built_in().values():
        if message.cause in causes():
            yield message.cause, " ".join((message.title, message.meaning, message.fix, *message.examples))


def _words(text: str) -> Iterator[str]:
    """Words without their endings; of names like `cudaErrorInvalidDevice` and `NCCL_IB_HCA` the parts too."""
    for word in _WORD.findall(text):
        yield _stem(word.lower())
        parts = word.lower().split("_") if "_" in word else _PARTS.findall(word)
        if len(parts) > 1:
            yield from (_stem(part.lower()) for part in parts if len(part) > 2)


def _stem(word: str) -> str:
    return next((word[: -len(end)] for end in _ENDINGS if word.endswith(end) and len(word) - len(end) >= 4), word)
