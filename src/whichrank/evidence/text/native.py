"""What looks at text in C (`_looks.c`): a part that need not be there."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType

from whichrank.evidence.extension import built

_VERSION = 4
"""Of what its functions take and return: a library left over from another version is not used."""


@lru_cache(maxsize=1)
def library() -> ModuleType | None:
    """The library, unless it was not built or WHICHRANK_NATIVE=0 switches it off."""
    return built("whichrank.evidence.text._looks", _VERSION)
