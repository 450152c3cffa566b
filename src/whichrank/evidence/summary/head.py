"""How a summary is recognised: by its first line, without loading what reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whichrank.model.contracts import Item

MAGIC = b"whichrank-summary 1\n"
NAME = "summary.whichrank"


def is_summary(item: Item) -> bool:
    return item.size > len(MAGIC) and item.head(len(MAGIC)) == MAGIC
