"""Regular expressions that are compiled when they are first used: a short run needs few of those that its modules hold.

For modules that every diagnosis loads. Elsewhere `re.compile` is simpler.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_METHODS = ("search", "match", "fullmatch", "findall", "finditer", "split", "sub")


class LatePattern:
    """What `late` gives; it has everything that a compiled expression has."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """Asked for what is not there yet. From then on the methods are those of the compiled expression itself."""
        compiled = re.compile(*self._given)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def late(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, but what is wrong with the expression is said only when it is used."""
    return cast("re.Pattern[AnyStr]", LatePattern(pattern, flags))
