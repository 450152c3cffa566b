"""A text that was taken out of another file, as a file of its own."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from whichrank.model.contracts import Item

LARGEST = 8 << 20
"""A larger file is what a job wrote itself, not what somebody put together."""


def rewritten(item: Item, folder: Path, suffix: str, text: bytes) -> Item:
    """The item with this text instead of its own."""
    target = folder / f"{item.path.name}.{suffix}"
    while target.exists():
        target = target.with_name(target.name + "_")
    target.write_bytes(text)
    return replace(item, path=target, size=len(text))
