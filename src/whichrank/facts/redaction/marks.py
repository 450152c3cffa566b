"""What was replaced is put aside while the rest is looked at: no pattern sees its own or another's replacement."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache

FIRST, LAST = 0xF0000, 0x10FFFF
"""Planes 15 and 16, for private use: no text has them, and no pattern matches them."""
MARK = re.compile(f"[{chr(FIRST)}-{chr(LAST)}]")


class Marks:
    """Replacements in one text: each distinct one is a single private character until `restored`."""

    def __init__(self, text: str, counts: Counter[str]) -> None:
        self.text = MARK.sub("?", text)
        self.counts = counts
        self._shown: list[str] = []
        self._places: dict[str, str] = {}

    def put(self, kind: str, replacement: str) -> str:
        """Count one replacement; returns what stands for it until the end."""
        self.counts[kind] += 1
        mark = self._places.get(replacement)
        if mark is None:
            if len(self._shown) > LAST - FIRST:
                return replacement
            mark = self._places[replacement] = chr(FIRST + len(self._shown))
            self._shown.append(replacement)
        return mark

    def sub(
        self, pattern: re.Pattern[str], change: Callable[[re.Match[str]], str | None], words: Iterable[str] = ()
    ) -> None:
        """Replace matches; None leaves one as it is. With `words`, only near one of them (in lower case)."""
        text, pieces, end = self.text, [], 0
        for match in found(pattern, text, words):
            new = change(match)
            if new is not None:
                pieces += [text[end : match.start()], new]
                end = match.end()
        if pieces:
            self.text = "".join([*pieces, text[end:]])

    def restored(self) -> str:
        return MARK.sub(lambda match: self._shown[ord(match.group()) - FIRST], self.text)


Span = tuple[int, int]


@lru_cache(maxsize=2)
def _lines_of(text: str) -> Callable[[str], list[Span]]:
    """What tells the lines with a word: many patterns look for the same words in the same text."""
    low = text.lower()
    if len(low) != len(text):  # the one letter whose lower case is two
        low = text.replace("\u0130", "I").lower()

    @cache
    def lines_with(word: str) -> list[Span]:
        spans, place = [], low.find(word)
        while place >= 0:
            # With the line before, where a list names what this line gives the value of.
            start = max(text.rfind("\n", 0, max(text.rfind("\n", 0, place), 0)) + 1, place - BEFORE)
            end = text.find("\n", place)
            end = min(len(text) if end < 0 else end + 1, place + BEHIND)
            spans.append((start, end))
            place = low.find(word, max(end - BEFORE, place + 1) if end - place >= BEHIND else end)
        return spans

    return lines_with


BEFORE, BEHIND = 200, 16_384
"""How far a match may reach from a word that must be in it: within its line, or so many characters."""


def found(pattern: re.Pattern[str], text: str, words: Iterable[str] = ()) -> Iterator[re.Match[str]]:
    """Matches, looked for only near the words: a search for words costs a hundredth of that for a pattern."""
    if not words:
        yield from pattern.finditer(text)
        return
    for start, end in windows(text, words):
        yield from pattern.finditer(text, start, end)


def windows(text: str, words: Iterable[str]) -> list[Span]:
    """The lines with one of these words in them, joined where they touch; of a monstrous line only a part."""
    lines_with = _lines_of(text)
    spans = sorted(span for word in words for span in lines_with(word))
    joined: list[Span] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
