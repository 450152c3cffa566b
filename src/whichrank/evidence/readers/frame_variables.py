"""The counts and flags that the training code of a rank held, as `whichrank run` takes them from the process."""

from __future__ import annotations

import json
from typing import Any

from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.records.variables import HeldFrame, Variables

NAME = "frame_variables"

_MOST = 1 << 20
_FRAMES = 64


def sniff(head: bytes, name: str) -> bool:
    """True for a JSON document that says so at its beginning."""
    return name.endswith(".json") and b'"whichrank_variables"' in head[:64]


def read(item: Item) -> Reading:
    """The frames of one rank."""
    if item.size > _MOST:
        raise UnreadableError(f"{item.label}: {item.size >> 20} MiB is too long for the variables of a rank")
    try:
        document = json.loads(item.read())
        frames = tuple(_frame(*row) for row in document["frames"][:_FRAMES])
        return Reading([Variables(int(document["rank"]), item.label, frames)])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableError(f"{item.label}: not the variables of a rank: {error}") from error


def _frame(file: Any, line: Any, function: Any, values: Any) -> HeldFrame:
    plain = {str(name): value for name, value in values.items() if isinstance(value, int)}
    return HeldFrame(str(file), int(line), str(function), plain)
