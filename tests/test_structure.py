"""Folders stay small enough to be read: many files mean sub-folders."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import ROOT

MOST = 25


def folders(top: Path) -> list[Path]:
    return [top, *(path for path in top.rglob("*") if path.is_dir() and path.name != "__pycache__")]


def test_no_folder_is_a_heap() -> None:
    """Recorded samples are data: one folder per set."""
    heaps = {}
    for top in ("src", "tests", "tools", "benchmarks"):
        for folder in folders(ROOT / top):
            if (ROOT / "tests/samples") in (folder, *folder.parents):
                continue
            modules = list(folder.glob("*.py"))
            if len(modules) > MOST:
                heaps[str(folder.relative_to(ROOT))] = len(modules)
    assert heaps == {}
