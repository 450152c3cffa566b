"""Where names of hosts, users and accounts stand in evidence: each pattern's group `n` is the name."""

from __future__ import annotations

import re
from typing import NamedTuple


class Place(NamedTuple):
    """Where a name stands, and words (in lower case) of which one is in every such place."""

    pattern: re.Pattern[str]
    words: tuple[str, ...]
    within_word: bool = False
    """Whether no space is in it, so that only the surroundings of the words need be looked at."""


def places(*rows: tuple[str, str]) -> tuple[Place, ...]:
    return tuple(Place(re.compile(pattern, re.MULTILINE), tuple(words.split())) for words, pattern in rows)


def paths(*rows: tuple[str, str]) -> tuple[Place, ...]:
    """Places without spaces in them."""
    return tuple(place._replace(within_word=True) for place in places(*rows))


QUOTE = r"\\{0,3}[\"'`]"
USER = r"(?P<n>[^\W\d_](?:[\w.+\-]{0,62}\w)?)"
PATH = r"(?P<n>[^\W_](?:[\w.+@\-]{0,62}[\w+\-])?)"
EDGE = r"(?:(?<![\w.\-])|(?<=\\[nrt])|(?<=\dm))"
SLASH = r"(?:\\{0,3}/|\\{1,2}|%2[Ff])"
IS = rf"(?:{QUOTE})?\s{{0,2}}[=:]\s{{0,2}}(?:{QUOTE})?"
