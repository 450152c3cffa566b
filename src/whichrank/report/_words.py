"""Small pieces of wording that the formats for people share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# Evidence is quoted, and evidence is hostile: control characters can drive a terminal, bidirectional
# marks can reorder what is read, lone surrogates can't be written at all.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
    "|[\U000e0000-\U000e007f]"
)


def safe(text: str) -> str:
    """The text on one line, with what a terminal might obey spelled out."""
    return _UNSAFE.sub(_spelled, text)


def _spelled(match: re.Match[str]) -> str:
    character = match.group()
    return " " if character in "\n\r\t" else character.encode("unicode_escape").decode("ascii")


def shortened(text: str, limit: int) -> str:
    """The text, or its beginning with the number of characters left out."""
    return text if len(text) <= limit else f"{text[:limit]}… (+{len(text) - limit:,} characters)"


def counted(count: int, noun: str) -> str:
    """`1 rank`, `4,096 ranks`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def percent(probability: float) -> str:
    """A probability as people say it; certainty is only said of 0 and 1."""
    if 0.99 < probability < 1:
        return "over 99 %"
    if 0 < probability < 0.01:
        return "under 1 %"
    return f"{probability * 100:.0f} %"


def spans(ranks: Iterable[int]) -> list[tuple[int, int]]:
    """Sorted numbers as inclusive runs."""
    runs: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    return runs


def ranges(ranks: Iterable[int], limit: int = 12) -> str:
    """`0-2, 4-63`; of many separate runs the first ones and how many ranks are left."""
    runs = spans(ranks)
    shown = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:limit])
    left = sum(b - a + 1 for a, b in runs[limit:])
    return f"{shown} and {left:,} more" if left else shown


def listed(words: Sequence[str], limit: int = 3) -> str:
    """The first words and how many more there are."""
    left = len(words) - limit
    shown = ", ".join(words[:limit])
    return f"{shown} and {left:,} more" if left > 0 else shown
