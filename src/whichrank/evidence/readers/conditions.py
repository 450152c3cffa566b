"""The conditions of a watched run: `conditions.json`. They are for comparing two runs, and prove nothing alone."""

from __future__ import annotations

from whichrank.model.contracts import Item, Reading

NAME = "conditions"


def sniff(head: bytes, name: str) -> bool:
    """True for a JSON document that says so at its beginning."""
    return name.endswith(".json") and b'"whichrank_conditions"' in head[:64]


def read(item: Item) -> Reading:
    """Nothing: versions and settings are no sign of a failure."""
    del item
    return Reading([], "ignored", "the conditions of the run, for whichrank compare")
