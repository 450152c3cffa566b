"""The end of a long text, with the number of its first line: what was written last counts most."""

from __future__ import annotations

from pathlib import Path

from whichrank.model.contracts import Item

_BLOCK = 1 << 20
_FILES = 4
_Version = tuple[Path, int, int]
_COUNTED: dict[_Version, int] = {}
"""How many lines end in the files looked at last: several readers of their ends want to know."""


def tail(item: Item, most: int) -> tuple[int, bytes]:
    """The number of the first line, and all of a small text or the last `most` bytes of another."""
    if item.is_small or item.kept is not None:
        return 1, item.read()
    with item.path.open("rb") as stream:
        stream.seek(max(0, item.size - most))
        text = stream.read(most)
    return 1 + max(0, breaks_in(item) - text.count(b"\n")), text


def breaks_in(item: Item) -> int:
    """How many lines end in a file, as far as it reached when it was found."""
    found = _COUNTED.get(_version(item))
    if found is None:
        found = _counted(item.path, item.size)
        remember_breaks(item, found)
    return found


def remember_breaks(item: Item, count: int) -> None:
    """Who has read the whole file need not be asked again."""
    if len(_COUNTED) >= _FILES:
        _COUNTED.clear()
    _COUNTED[_version(item)] = count


def _version(item: Item) -> _Version:
    return item.path, item.size, item.mtime_ns


def _counted(path: Path, size: int) -> int:
    found, left = 0, size
    with path.open("rb", buffering=0) as stream:
        while left > 0 and (block := stream.read(min(_BLOCK, left))):
            found += block.count(b"\n")
            left -= len(block)
    return found
