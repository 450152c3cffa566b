"""What a script and its own modules import: imported once before the ranks are forked."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

FILES = 200
HEAVY_AND_STRANGE = ("tensorflow", "jax", "antigravity", "this", "__future__", "__main__")


def imported(script: Path) -> list[str]:
    """Modules of others that stand in the script, or in modules of its folder that it imports."""
    folder, found = script.parent, dict[str, None]()
    queue, seen = [script], set[Path]()
    while queue and len(seen) < FILES:
        file = queue.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in _names(file):
            own = _own(name, folder)
            if own is not None:
                queue.append(own)
            elif name.partition(".")[0] not in HEAVY_AND_STRANGE:
                found[name] = None
    return [name for name in found if name.partition(".")[0] not in sys.stdlib_module_names]


def _names(file: Path) -> list[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    names: list[str] = []
    for node in tree.body:  # what stands deeper may never be reached
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.append(node.module)
    return names


def _own(name: str, folder: Path) -> Path | None:
    path = folder.joinpath(*name.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None
