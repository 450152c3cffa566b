"""The end of a long text, with the number of its first line: what was written last counts most."""

from __future__ import annotations

from whichrank.model.contracts import Item

_BLOCK = 1 << 20


def tail(item: Item, most: int) -> tuple[int, bytes]:
    """The number of the first line, and all of a small text or the last `most` bytes of another."""
    if item.is_small or item.kept is not None:
        return 1, item.read()
    first = 1
    with item.path.open("rb") as stream:
        while (skipped := item.size - most - stream.tell()) > 0:
            first += stream.read(min(_BLOCK, skipped)).count(b"\n")
        return first, stream.read(most)
