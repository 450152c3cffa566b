"""One format per file, or per folder with a `diagnosis.py`: `NAME` and `render(diagnosis)`.

Formats are discovered; names starting with "_" help.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from whichrank.model.contracts import Format


PAGE = "diagnosis"


def names() -> list[str]:
    """The formats that exist, by their files, without importing them."""
    here = Path(__file__).parent
    known = [path for path in here.iterdir() if not path.name.startswith("_")]
    return sorted(path.stem for path in known if path.suffix == ".py" or (path / f"{PAGE}.py").exists())


def load(name: str) -> Format:
    """The module of one format."""
    inner = f".{PAGE}" if (Path(__file__).parent / name).is_dir() else ""
    return cast("Format", import_module(f"{__name__}.{name}{inner}"))
