"""Training code that people quote in a ticket or a post: where ranks part ways around a collective."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.evidence.readers.training_code import apart, clues_of
from whichrank.evidence.text.chunks import PADDING, Chunk
from whichrank.evidence.text.quotations import DOCUMENTS, Quotations
from whichrank.evidence.text.text_file import is_text
from whichrank.model.contracts import Item, Reading

NAME = "quoted_code"
BESIDE = True

_LARGEST = 1 << 16
_NOTES = (*DOCUMENTS, ".txt")
_DEFINITION = re.compile(r"(?P<indent> {0,12})(?:(?:async )?def|class) \w{1,80}[^\n]{0,200}:\s{0,8}(?:#|$)")
_FENCES = (b"```", b"~~~", b"{code", b"<pre", b"    ")


def sniff(head: bytes, name: str) -> bool:
    """A document with something quoted in it."""
    return name.lower().endswith(_NOTES) and is_text(head) and any(fence in head for fence in _FENCES)


def read(item: Item) -> Reading:
    """The clues of all that is quoted; logs have none."""
    if item.size > _LARGEST:
        return Reading([], "ignored", "too long for a ticket")
    text = item.read()
    words = text.decode("utf-8", "replace")
    lines = words.split("\n")
    code = set(_defined(lines))
    if item.label.lower().endswith(DOCUMENTS):  # in other texts what is indented need not be a quotation
        code |= Quotations().lines(Chunk(bytearray(text + bytes(PADDING)), len(text), 0, 1))
    quoted = [(at + 1, line) for at, line in enumerate(lines) if at in code]
    clues = clues_of(item.label, quoted, words) or apart(item.label, quoted)
    return Reading(list(clues), "complete" if clues else "ignored", "" if clues else "no code with a clue in it")


def _defined(lines: list[str]) -> Iterator[int]:
    """Functions and classes that stand in a post without any marks: their first line, and what is indented below it."""
    indent: int | None = None
    for at, line in enumerate(lines):
        text = line.expandtabs(4)
        if indent is not None and text.strip() and len(text) - len(text.lstrip()) <= indent:
            indent = None
        if indent is None and (match := _DEFINITION.match(text)):
            indent = len(match["indent"])
        if indent is not None:
            yield at
