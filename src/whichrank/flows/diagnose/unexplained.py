"""Where nothing says why: the lines that look most like trouble, and the causes they come closest to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from whichrank.evidence.text.text_file import is_text
from whichrank.facts.closest_cause import MOST_LINES, closest
from whichrank.facts.messages import recognise
from whichrank.model.contracts import Item
from whichrank.model.evidence import Ref
from whichrank.records.second_looks import ClosestCause

# In lower case; words are found many times as fast as a pattern that has them all.
_WORDS = (
    "warn", "error", "fail", "disabl", "cannot", "can't", "unable", "mismatch", "refus", "timed", "denied", "lost",
    "stuck", "hang", "hung", "slow", "invalid", "unexpected", "exceed", "killed", "abort", "exception", "differ",
    "missing", "inconsist",
)  # fmt: skip
_SHAPES = re.compile(r"time.?out|no(?<!\wno)t?\b")
_NO_STATEMENT = re.compile(r'(?:\[[^\]]{1,40}\]:?)?\s{0,40}(?:File "|"[A-Z][A-Z0-9_]{2,60}": |#\d{1,4} )')
"""Frames of a stack, and variables in a captured environment."""
_NUMBERS = re.compile(r"\d+")
_LARGEST = 1 << 19
"""Of a longer file the beginning is read."""
_KEPT = 8
"""Causes that are told of."""


def closest_causes(items: Iterable[Item]) -> list[ClosestCause]:
    """The causes whose wording comes closest to the lines that speak of trouble, the closest first."""
    places = list(islice(_trouble(items), MOST_LINES))
    ranked = closest((at, text) for at, (_, _, text) in enumerate(places))[:_KEPT]
    return [
        ClosestCause(found.cause, found.score, Ref(label, f"line {number}", text.strip()[:300]))
        for found in ranked
        for label, number, text in [places[found.line]]
    ]


def _trouble(items: Iterable[Item]) -> Iterator[tuple[str, int, str]]:
    """File, number and text of every such line; one that differs from another by numbers alone is left out."""
    seen: set[str] = set()
    for item in items:
        try:
            data = item.head(_LARGEST)
        except OSError:
            continue
        if not is_text(data[:4096]):
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
            if _is_trouble(line[:600].lower()) and (shape := _NUMBERS.sub("0", line[:200])) not in seen:
                seen.add(shape)
                if not _accounted_for(line[:600]):
                    yield item.label, number, line[:600]


def _is_trouble(line: str) -> bool:
    return any(map(line.__contains__, _WORDS)) or _SHAPES.search(line) is not None


def _accounted_for(line: str) -> bool:
    """Whether it states nothing, or is known to tell no cause: healthy jobs print it, or it follows from a failure."""
    if _NO_STATEMENT.match(line):
        return True
    known = recognise(line)
    return bool(known) and all(signature.role in ("harmless", "consequence", "activity") for signature, _ in known)
