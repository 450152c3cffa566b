"""The end of a long text, with the number of its first line: what was written last counts most."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from whichrank.model.contracts import Item

_BLOCK = 1 << 20


def tail(item: Item, most: int) -> tuple[int, bytes]:
    """The number of the first line, and all of a small text or the last `most` bytes of another."""
    if item.is_small or item.kept is not None:
        return 1, item.read()
    with item.path.open("rb") as stream:
        stream.seek(max(0, item.size - most))
        text = stream.read(most)
    return 1 + max(0, breaks_in(item.path, item.size, item.mtime_ns) - text.count(b"\n")), text


@lru_cache(maxsize=4)
def breaks_in(path: Path, size: int, _mtime_ns: int) -> int:
    """How many lines end in the first `size` bytes of a file: several readers of its end want to know."""
    found, left = 0, size
    with path.open("rb", buffering=0) as stream:
        while left > 0 and (block := stream.read(min(_BLOCK, left))):
            found += block.count(b"\n")
            left -= len(block)
    return found
