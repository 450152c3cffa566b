"""Lists of hosts as Slurm writes them, `n[1-3,7],gpu-[001-004]`, and their order."""

from __future__ import annotations

import re

MOST_NODES = 100_000
_NUMBERS = re.compile(r"(\d{1,18})")


def expand(text: str) -> list[str]:
    """The names in `n[1-3,7],gpu-[001-004]`; what can't be understood stays as it is."""
    names: list[str] = []
    for part in _parts(text):
        names += _expanded(part, MOST_NODES - len(names))
    return names


def _parts(text: str) -> list[str]:
    """Cut at commas that are in no brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part for part in (*parts, text[start:]) if part]


def _expanded(part: str, most: int) -> list[str]:
    """All combinations of the bracketed ranges of one name."""
    names = [""]
    for at, piece in enumerate(re.split(r"\[([^\[\]]*)\]", part)):
        ends = _range(piece, most) if at % 2 else [piece]
        names = [name + end for name in names[:most] for end in ends[: max(1, most // max(1, len(names)))]]
    return names[:most]


def _range(text: str, most: int) -> list[str]:
    found: list[str] = []
    for item in text.split(","):
        match = re.fullmatch(r"(\d{1,9})-(\d{1,9})", item)
        if match is None:
            found.append(item)
            continue
        first, last = int(match[1]), int(match[2])
        found += [str(n).zfill(len(match[1])) for n in range(first, min(last, first + most) + 1)]
    return found


def by_numbers(name: str) -> list[tuple[int, str]]:
    """Sorts names with their numbers as numbers."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in _NUMBERS.split(name)]
