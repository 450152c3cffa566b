"""What was replaced is put aside while the rest is looked at: no pattern sees its own or another's replacement."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

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

    def sub(self, pattern: re.Pattern[str], change: Callable[[re.Match[str]], str | None]) -> None:
        """Replace matches; None leaves one as it is."""

        def changed(match: re.Match[str]) -> str:
            new = change(match)
            return match.group() if new is None else new

        self.text = pattern.sub(changed, self.text)

    def restored(self) -> str:
        return MARK.sub(lambda match: self._shown[ord(match.group()) - FIRST], self.text)
