"""Which known causes a text comes closest to, by its words: what is left where no message, dump or stack tells.

A classifier of words (complement naive Bayes). It has learned from two things: what whichrank itself says of every
cause (its meaning, its fix, its known messages with examples), and how often each word occurs in reports of people
whose cause is known (`reported_words.txt`, made by `tools/reported_words.py`; counts only, not the reports).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from math import fsum, log, sqrt
from pathlib import Path
from statistics import median
from typing import NamedTuple

from whichrank.facts import site
from whichrank.facts.fixes import fix
from whichrank.facts.messages import built_in, listed
from whichrank.facts.taxonomy import causes

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{2,60}|\d{3,5}\b")
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_ENDINGS = ("ing", "ed", "es", "s")
UNIT = 1000
"""Weights in the table are in thousandths."""
_SMOOTHING = 1.0
_KEPT = 16


class Closeness(NamedTuple):
    """How much closer the text is to a cause than to the median one, and the line that says most."""

    cause: str
    score: float
    told: float
    """What all words together tell of it: a few common ones tell little, whichever cause they are closest to."""
    line: int


class Model(NamedTuple):
    """What words weigh."""

    rarity: dict[str, float]
    gains: dict[str, list[tuple[str, float]]]
    """Of a word, how much more it speaks for each cause than for any other."""
    bases: dict[str, float]


def closest(lines: Sequence[str]) -> list[Closeness]:
    """The causes, the closest first. Lines that say nothing new should have been left out."""
    model = _model()
    spoken = [list(words(line)) for line in lines]
    counts = Counter(word for line in spoken for word in line)
    weights = weighed(counts, model.rarity)
    total = sum(weights.values())
    scores = {cause: base * total for cause, base in model.bases.items()}
    for word, weight in weights.items():
        for cause, gain in model.gains.get(word, ()):
            scores[cause] += weight * gain
    if not scores or not total:
        return []
    middle = median(scores.values())
    ranked = sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:_KEPT]
    return [
        Closeness(cause, score - middle, _told(set(counts), cause, model), _telling(spoken, cause, model))
        for cause, score in ranked
    ]


def _told(spoken: set[str], cause: str, model: Model) -> float:
    # Exact, so that the order of the words does not decide between lines that say the same.
    return fsum(model.rarity[word] * gain for word in spoken for c, gain in model.gains.get(word, ()) if c == cause)


def _telling(lines: Sequence[Sequence[str]], cause: str, model: Model) -> int:
    """The line whose words speak most for the cause."""
    told = [_told(set(line), cause, model) / sqrt(len(set(line)) + 5) for line in lines]
    return told.index(max(told))


@cache
def _model() -> Model:
    passages = [(cause, Counter(words(text))) for cause, text in passages_of_causes()]
    told, having, number = reported()
    for _, counts in passages:
        having.update(counts.keys())
    number += len(passages)
    rarity = rarities(having, number)
    held: dict[str, Counter[str]] = defaultdict(Counter)
    for cause, weights in told:
        held[cause].update(weights)
    for cause, counts in passages:
        held[cause].update(weighed(counts, rarity))
    everywhere: Counter[str] = Counter()
    for of_cause in held.values():
        everywhere.update(of_cause)
    whole = sum(everywhere.values()) + _SMOOTHING * len(everywhere)
    gains: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for cause, of_cause in held.items():
        for word, weight in of_cause.items():
            gains[word].append((cause, -log(1 - weight / (everywhere[word] + _SMOOTHING))))
    return Model(rarity, gains, {cause: log(whole - sum(of_cause.values())) for cause, of_cause in held.items()})


def reported() -> tuple[list[tuple[str, Counter[str]]], Counter[str], int]:
    """Weights of words by cause, in how many reports each word is, and the number of reports."""
    first, *others = Path(__file__).with_name("reported_words.txt").read_text(encoding="utf-8").splitlines()
    number, *having = first.split()
    weights = [(cause, _numbers(pairs, 1 / UNIT)) for cause, *pairs in map(str.split, others)]
    return weights, _numbers(having, 1), int(number)


def _numbers(pairs: list[str], unit: float) -> Counter[str]:
    return Counter({word: int(value) * unit for word, _, value in (pair.partition("=") for pair in pairs)})


def rarities(having: Counter[str], number: int) -> dict[str, float]:
    """Words that few texts have weigh most."""
    return {word: log((1 + number) / (1 + count)) + 1 for word, count in having.items()}


def weighed(counts: Counter[str], rarity: dict[str, float]) -> Counter[str]:
    """The weights of the words of a text, as a vector of length one."""
    weights = {word: (1 + log(count)) * rarity[word] for word, count in counts.items() if word in rarity}
    length = sqrt(sum(weight * weight for weight in weights.values())) or 1.0
    return Counter({word: weight / length for word, weight in weights.items()})


def passages_of_causes() -> Iterator[tuple[str, str]]:
    """What whichrank says of causes: cause and text."""
    of_site = {row["cause"] for row in site.added_causes()}  # their own rules know when they are meant
    for name, cause in causes().items():
        if name not in ("healthy", "unknown") and name not in of_site:
            yield name, f"{name.replace('-', ' ')} {cause.meaning}"
            yield name, " ".join(fix(name))
    for message in built_in().values():
        # A list of shapes is recognised as it stands; its words are those of a vendor, not how a cause is spoken of.
        if message.cause in causes() and message.id not in listed():
            yield message.cause, " ".join((message.title, message.meaning, message.fix, *message.examples))


def words(text: str) -> Iterator[str]:
    """Words without their endings; of names like `cudaErrorInvalidDevice` and `NCCL_IB_HCA` the parts too."""
    for word in _WORD.findall(text):
        yield _stem(word.lower())
        parts = word.lower().split("_") if "_" in word else _PARTS.findall(word)
        if len(parts) > 1:
            yield from (_stem(part.lower()) for part in parts if len(part) > 2)


def _stem(word: str) -> str:
    return next((word[: -len(end)] for end in _ENDINGS if word.endswith(end) and len(word) - len(end) >= 4), word)
