"""Which one of several lines differs from all others, and in which words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from whichrank.flows.diagnose.odd_hosts.texts import COUNTED, Said

NUMBER = re.compile(r"\W*(\d+(?:\.\d+)?)[A-Za-z%/]{0,6}\W*")
_ADDRESS, _LOOPBACK = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}"), re.compile(r"127(?:\.\d{1,3}){3}")
_FAR = 100
"""Times a number that no two hosts have alike: clocks that are off by minutes, not by microseconds."""
_APART = 1.5
"""Numbers that lie closer together than this are measurements, and differ everywhere."""


class Difference(NamedTuple):
    """The line of the one host that differs."""

    said: Said
    own: str
    """The words that no other host has."""
    usual: str
    """Those that all others have instead."""


def one_that_differs(by_host: dict[str, Said]) -> Difference | None:
    found = []
    for each in by_host.values():
        others = [other.words for other in by_host.values() if other is not each]
        if not _are_of_one_kind(others):
            continue
        own, usual = _in_places(each.words, others) or _among_all(each.words, others)
        if (own or usual) and not only_measured(own, usual):
            found.append(Difference(each, " ".join(own), " ".join(usual)))
    return found[0] if len(found) == 1 else None


def _are_of_one_kind(lines: Sequence[Sequence[str]]) -> bool:
    """Whether lines have most of their words in common, numbers aside: else they only stand at the same place."""
    shapes = [COUNTED.sub("#", " ".join(words)).split(" ") for words in lines]
    if len({len(shape) for shape in shapes}) > 1:
        return False
    return 2 * sum(len(set(words)) == 1 for words in zip(*shapes, strict=True)) > len(shapes[0])


def _in_places(mine: Sequence[str], others: Sequence[Sequence[str]]) -> tuple[list[str], list[str]] | None:
    """Word by word, where all lines have as many: what it has, and what all others have there."""
    if any(len(words) != len(mine) for words in others):
        return None
    places = [
        at for at, word in enumerate(mine) if word not in (words := {o[at] for o in others}) and _apart(word, words)
    ]
    return [mine[at] for at in places], [others[0][at] for at in places]


def _apart(mine: str, others: set[str]) -> bool:
    """Whether all others say the same, or numbers of which this one is far from every other."""
    if len(others) == 1 or (_LOOPBACK.fullmatch(mine) and all(map(_ADDRESS.fullmatch, others))):
        return True
    numbers = [NUMBER.fullmatch(word) for word in (mine, *others)]
    values = [abs(float(number[1])) for number in numbers if number]
    return len(values) == len(others) + 1 and (values[0] > _FAR * max(values[1:]) or _FAR * values[0] < min(values[1:]))


def _among_all(mine: Sequence[str], others: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """The words that nobody else has, and those that all others have; nothing where the others differ as well."""
    if len({len(words) for words in others}) > 1:
        return [], []
    shared, anywhere = set.intersection(*map(set, others)), set().union(*others)
    own = [word for word in mine if word not in anywhere]
    return own, [word for word in others[0] if word in shared and word not in mine]


def only_measured(own: Sequence[str], usual: Sequence[str]) -> bool:
    """Whether nothing but numbers differ, and not by much."""
    numbers = [[NUMBER.fullmatch(word) for word in words] for words in (own, usual)]
    if not all(match is not None for words in numbers for match in words):
        return False
    mine, theirs = ([float(match[1]) for match in words if match] for words in numbers)
    if len(mine) != len(theirs) or not theirs:
        return not theirs
    return all(max(a, b) < _APART * min(a, b) or a == b for a, b in zip(mine, theirs, strict=True))
