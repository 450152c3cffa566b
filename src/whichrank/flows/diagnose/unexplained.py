"""Where nothing says why: the lines that look most like trouble, and the causes they come closest to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from whichrank.evidence.text.text_file import is_text
from whichrank.facts.closest_cause import closest
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
_NUMBERS = re.compile(r"\d+")
_LARGEST = 1 << 17
"""Of a longer file the beginning is read."""
_LONGEST, _MOST = 600, 16_000
"""Characters of a line, and of all lines together."""


def closest_causes(items: Iterable[Item]) -> list[ClosestCause]:
    """The causes whose wording comes closest to a text that speaks of trouble, the closest first."""
    places = list(new_lines(_texts(items)))
    if not any(_is_trouble(text.lower()) and not _accounted_for(text) for _, _, text in places):
        return []
    return [
        ClosestCause(found.cause, found.score, found.told, Ref(label, f"line {number}", text.strip()[:300]))
        for found in closest([text for _, _, text in places])
        for label, number, text in [places[found.line]]
    ]


def _texts(items: Iterable[Item]) -> Iterator[tuple[str, bytes]]:
    for item in items:
        try:
            data = item.head(_LARGEST)
        except OSError:
            continue
        if is_text(data[:4096]) and data[:2] != b"{\n":  # settings and the like, not what somebody says
            yield item.label, data


def new_lines(texts: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, int, str]]:
    """File, number and text of lines; one that differs from another by numbers alone is left out."""
    seen: set[str] = set()
    size = 0
    for label, data in texts:
        for number, line in enumerate(data[:_LARGEST].decode("utf-8", "replace").split("\n"), 1):
            text = line[:_LONGEST]
            shape = _NUMBERS.sub("0", text[:200])
            if shape in seen or not text.strip():
                continue
            seen.add(shape)
            yield label, number, text
            size += len(text)
            if size > _MOST:
                return


def _accounted_for(line: str) -> bool:
    """Whether it is known to tell no cause: healthy jobs print it, or it follows from a failure."""
    known = recognise(line)
    return bool(known) and all(signature.role in ("harmless", "consequence", "activity") for signature, _ in known)


def _is_trouble(line: str) -> bool:
    return any(map(line.__contains__, _WORDS)) or _SHAPES.search(line) is not None
