"""The loops of a job's scripts, as `whichrank run` writes them down: `code/outline.json`."""

from __future__ import annotations

import json

from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.records.outline import Loop, Outline

NAME = "outline"

_MOST = 1 << 22


def sniff(head: bytes, name: str) -> bool:
    """True for a JSON document that says so at its beginning."""
    return name.endswith(".json") and b'"whichrank_outline"' in head[:64]


def read(item: Item) -> Reading:
    """The loops of every script."""
    if item.size > _MOST:
        raise UnreadableError(f"{item.label}: {item.size >> 20} MiB is too long for an outline")
    try:
        told = json.loads(item.read())
        files = dict(told["loops"])
        halves = dict(told.get("exchanges", {}))
        branches, by_rank, sorts, functions, calls = (
            {str(file): tuple((int(a), int(b)) for a, b in rows) for file, rows in dict(told.get(key, {})).items()}
            for key in ("branches", "by_rank", "sorts", "functions", "calls")
        )
        counters, roles = (
            {str(file): frozenset(map(str, names)) for file, names in dict(told.get(key, {})).items()}
            for key in ("counters", "roles")
        )
        loops = {str(file): tuple(Loop(int(a), int(b), bool(c)) for a, b, c in rows) for file, rows in files.items()}
        named = {
            str(file): tuple((int(line), str(name), str(group)) for line, name, group in rows)
            for file, rows in dict(told.get("names_called", {})).items()
        }
        exchanges = {str(file): tuple(map(int, rows)) for file, rows in halves.items()}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableError(f"{item.label}: not an outline: {error}") from error
    return Reading([Outline(loops, branches, exchanges, by_rank, sorts, functions, calls, named, counters, roles)])
