"""The decoder in C (`_native.c`), where it was built: records of a pickle as columns, one example of each kind."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

_VERSION = 1
"""Of what `_native.decode` takes and returns: a library left over from another version is not used."""


@dataclass(slots=True)
class Records:
    """A well-formed pickle: the list of records as columns, and what stood beside it."""

    rest: dict[Any, Any]
    """The dict around the list, without it; empty where the list is the whole file."""
    examples: list[dict[Any, Any]]
    """Records that differ in more than their numbers, each once."""
    lines: bytes
    """For every item of the list the number of its example, -1 for one that is no record (32 bits each)."""
    columns: bytes
    """Column after column, 64 bits each: integers first, then reals. 0 or nan where a record has no such number."""


@lru_cache(maxsize=1)
def library() -> ModuleType | None:
    """The library, unless it was not built or WHICHRANK_NATIVE=0 switches it off."""
    if os.environ.get("WHICHRANK_NATIVE") == "0":
        return None
    try:
        from whichrank.evidence.pickle import _native
    except ImportError:
        return None
    return _native if _native.VERSION == _VERSION else None


def records(data: bytes, marker: str, ints: tuple[str, ...], reals: tuple[str, ...], unused: str) -> Records | None:
    """The records of a pickle; None where only `decoder.decode` can tell what it holds or what is wrong with it."""
    native = library()
    found = native.decode(data, marker, ints, reals, unused) if native is not None else None
    return Records(*found) if found is not None else None
