"""Training code that people quote in a ticket or a post: where ranks part ways around a collective."""

from __future__ import annotations

from whichrank.evidence.readers.training_code import clues_of
from whichrank.evidence.text.chunks import PADDING, Chunk
from whichrank.evidence.text.quotations import DOCUMENTS, Quotations
from whichrank.evidence.text.text_file import is_text
from whichrank.model.contracts import Item, Reading

NAME = "quoted_code"
BESIDE = True

_LARGEST = 1 << 16
_FENCES = (b"```", b"~~~", b"{code", b"<pre", b"    ")


def sniff(head: bytes, name: str) -> bool:
    """A document with something quoted in it."""
    return name.lower().endswith(DOCUMENTS) and is_text(head) and any(fence in head for fence in _FENCES)


def read(item: Item) -> Reading:
    """The clues of all that is quoted; logs have none."""
    if item.size > _LARGEST:
        return Reading([], "ignored", "too long for a ticket")
    text = item.read()
    quoted = Quotations().lines(Chunk(bytearray(text + bytes(PADDING)), len(text), 0, 1))
    lines = enumerate(text.decode("utf-8", "replace").split("\n"))
    clues = clues_of(item.label, [(at + 1, line) for at, line in lines if at in quoted])
    return Reading(list(clues), "complete" if clues else "ignored", "" if clues else "no code with a clue in it")
