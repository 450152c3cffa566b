"""The decoder in C (`_native.c`), where it was built: records of a pickle as columns, one example of each kind."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

from msgspec import Struct

from whichrank.evidence.extension import built

_VERSION = 1
"""Of what `_native.decode` takes and returns: a library left over from another version is not used."""


class Wanted(NamedTuple):
    """Which dicts of a pickle are records, and what of them is wanted."""

    marker: str
    """They have this key."""
    ints: tuple[str, ...]
    reals: tuple[str, ...]
    """Keys whose numbers become columns."""
    skipped: tuple[str, ...]
    """Keys that nobody reads."""
    parts: tuple[str, ...]
    """Keys whose values differ between files that otherwise say the same."""
    known: Mapping[bytes, object]
    """What is known of records, by the bytes of everything else in them (a dict)."""


class Records(Struct):
    """A well-formed pickle: the list of records as columns, and what stood beside it."""

    rest: dict[Any, Any]
    """The dict around the list, without it; empty where the list is the whole file."""
    examples: list[tuple[Any, dict[Any, Any]]]
    """Records that differ in more than their numbers, each once: what `known` has for it and its parts, or else
    its key (None where it is too long for one) and the whole record."""
    lines: bytes
    """For every item of the list the number of its example, -1 for one that is no record (32 bits each)."""
    columns: bytes
    """Column after column, 64 bits each: integers first, then reals. 0 or nan where a record has no such number."""
    unnumbered: bool
    """Whether a record lacks the first column."""


@lru_cache(maxsize=1)
def library() -> ModuleType | None:
    """The library, unless it was not built or WHICHRANK_NATIVE=0 switches it off."""
    return built("whichrank.evidence.pickle._native", _VERSION)


def records(data: bytes, wanted: Wanted) -> Records | None:
    """The records of a pickle; None where only `decoder.decode` can tell what it holds or what is wrong with it."""
    native = library()
    found = native.decode(data, *wanted) if native is not None else None
    return Records(*found) if found is not None else None
