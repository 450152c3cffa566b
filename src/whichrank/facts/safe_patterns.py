"""Whether a regular expression from outside is safe to search with: no repeats that multiply.

Python's `re` can't be interrupted, so a pattern must be known to be cheap before it is used. Patterns are searched in
windows of about 1,300 characters (`messages.BEFORE`, `messages.BEHIND`), in lines that anybody may have written.
"""

from __future__ import annotations

import re
import sys
import warnings
from importlib import import_module
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    _NEW = sys.version_info >= (3, 11)
    _codes: Any = import_module("re._constants" if _NEW else "sre_constants")
    _parse: Any = import_module("re._parser" if _NEW else "sre_parse")

WINDOW = 1280
FEW = 8
"""A repeat of at most so many does not count as open."""
MOST_WAYS = 8_000_000
"""Ways in which the open repeats of a pattern may share a window: two without bound, or three of 200."""
LONGEST = 4000


def complaint(pattern: str) -> str:
    """What is wrong with a pattern, or nothing."""
    if len(pattern) > LONGEST:
        return f"the pattern is longer than {LONGEST} characters"
    try:
        re.compile(pattern)
        parsed: Any = _parse.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"the pattern is not a valid regular expression: {error}"
    try:
        ways = _ways(parsed)
    except _NestedError as error:
        return str(error)
    if ways > MOST_WAYS:
        return "too many open repeats (.* or {0,1000}) in one pattern: give them small bounds, such as [^\\n]{0,80}"
    return ""


class _NestedError(Exception):
    pass


def _ways(items: Any, ignored: int = FEW) -> int:
    """In how many ways the repeats of a sequence can share a text that does not fit."""
    ways = 1
    for code, argument in items:
        if code in (_codes.MAX_REPEAT, _codes.MIN_REPEAT) or str(code) == "POSSESSIVE_REPEAT":
            low, high, body = argument
            ways *= _nested(body, int(high))
            width = min(int(high), WINDOW) - int(low) + 1
            ways *= width if width > ignored else 1
        elif code is _codes.BRANCH:
            ways *= max(_ways(branch, ignored) for branch in argument[1])
        elif code is _codes.SUBPATTERN:
            ways *= _ways(argument[-1], ignored)
        elif code in (_codes.ASSERT, _codes.ASSERT_NOT):
            ways *= _ways(argument[1], ignored)
        elif str(code) == "ATOMIC_GROUP":
            ways *= _ways(argument, ignored)
        elif code is _codes.GROUPREF:
            ways *= 2
    return ways


def _nested(body: Any, most: int) -> int:
    """The ways within the body of a repeat; what has few of them may be repeated a few times, as (\\d{1,3}\\.){3}."""
    if most <= 1 or _one_way(body):
        return _ways(body)
    ways = max(2, _ways(body, 0)) ** most if most <= FEW else MOST_WAYS + 1
    if ways > MOST_WAYS:
        raise _NestedError(
            "a repeat holds another repeat or alternatives, as in (a+)+ or (a|ab)*: a line that almost fits "
            "could take years. Write it without nesting"
        )
    return ways


def _one_way(body: Any) -> bool:
    """Whether the body of a repeat can match a given text in one way only: it has a fixed length and no choice."""
    for code, argument in body:
        if code in (_codes.MAX_REPEAT, _codes.MIN_REPEAT):
            low, high, inner = argument
            if int(low) != int(high) or not _one_way(inner):
                return False
        elif code is _codes.BRANCH:
            if not _distinct(argument[1]):
                return False
        elif code is _codes.SUBPATTERN:
            if not _one_way(argument[-1]):
                return False
        elif code is _codes.GROUPREF:
            return False
    return True


def _distinct(branches: Any) -> bool:
    """Alternatives that begin with different letters and have one way each: the first letter decides."""
    heads = [branch[0] for branch in branches if len(branch)]
    letters = [argument for code, argument in heads if code is _codes.LITERAL]
    return len(letters) == len(branches) == len(set(letters)) and all(_one_way(branch) for branch in branches)
