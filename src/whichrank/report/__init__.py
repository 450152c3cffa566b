"""One format per file: `NAME` and `render(diagnosis)`. Files are discovered; names starting with "_" help."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from whichrank.model.contracts import Format


def names() -> list[str]:
    """The formats that exist, by their files, without importing them."""
    stems = (file.stem for file in Path(__file__).parent.glob("*.py"))
    return sorted(stem for stem in stems if not stem.startswith("_"))


def load(name: str) -> Format:
    """The module of one format."""
    return cast("Format", import_module(f"{__name__}.{name}"))
