"""What a command printed, for readers that look at each of its lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from whichrank.evidence.text.prefixes.ansi import strip_ansi
from whichrank.evidence.text.text_file import chunks
from whichrank.model.contracts import Item, Reading

MOST = 32 << 20
LONGEST = 1 << 14
"""Bytes of a file that are read, and of a line."""


def plain_lines(item: Item, most: int = MOST) -> Iterator[tuple[int, str]]:
    """Number and text of every line, without colours, as far as the file is read."""
    number = size = 0
    for chunk in chunks(item.path):
        size += len(chunk)
        if size > most:
            return
        for line in chunk.splitlines():
            number += 1
            yield number, strip_ansi(line[:LONGEST].decode("utf-8", "replace").rstrip())


def reading_of(item: Item, records: list[Any], most: int = MOST, *, whole: bool = True) -> Reading:
    """What the lines gave, with a note where not all of them were read."""
    if whole and item.size <= most:
        return Reading(records, "complete")
    return Reading(records, "partial", "too long to be read whole")
