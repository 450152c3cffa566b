"""A copy of the script's folder, for machines where the file systems can't be covered by namespaces."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

SKIPPED = {
    ".git",
    ".hg",
    ".venv",
    "venv",
    "__pycache__",
    "node_modules",
    ".mypy_cache",
    ".pytest_cache",
    "wandb",
    "mlruns",
}
COPIED_BYTES, FILES = 1 << 20, 20_000


def copy(folder: Path, target: Path) -> list[str]:
    """Small files are copied, large ones linked (a rehearsal may read them, and not write); says what was left out."""
    notes: list[str] = []
    count = 0
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED and not Path(place, name).is_symlink()]
        there = target / Path(place).relative_to(folder)
        there.mkdir(parents=True, exist_ok=True)
        for name in files:
            count += 1
            if count > FILES:
                notes.append(f"only the first {FILES:,} files of {folder} were copied")
                return notes
            _one(Path(place, name), there / name)
    return notes


def _one(source: Path, target: Path) -> None:
    try:
        if source.is_file() and not source.is_symlink() and source.stat().st_size <= COPIED_BYTES:
            shutil.copy2(source, target)
        elif source.exists():
            target.symlink_to(source.resolve())
    except OSError:
        return
