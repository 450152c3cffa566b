"""The build with a compiler and without: the decoders in C are a gift, never a condition."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tests.conftest import ROOT
from tests.evidence.building import can_build

needs.package("setuptools")


SOURCES = (
    "src/whichrank/evidence/pickle/_native.c",
    "src/whichrank/evidence/readers/kineto/_scan.c",
    "src/whichrank/evidence/text/_looks.c",
)


def built(folder: Path, **environment: str) -> tuple[subprocess.CompletedProcess[str], list[Path]]:
    """What `build_ext` makes of this checkout, as pip calls it."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    for source in SOURCES:
        (folder / source).parent.mkdir(parents=True)
        shutil.copy(ROOT / source, folder / source)
    (folder / "src/whichrank/__init__.py").write_text('__version__ = "0"\n')
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done, list(folder.rglob("src/**/*.so"))


@pytest.mark.skipif(not can_build(), reason="no C compiler, or no headers of Python")
def test_a_compiler_makes_libraries_for_all_versions_of_python(tmp_path):
    done, libraries = built(tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(library.name for library in libraries) == ["_looks.abi3.so", "_native.abi3.so", "_scan.abi3.so"]


def test_without_a_compiler_the_build_succeeds(tmp_path):
    done, libraries = built(tmp_path, CC=str(tmp_path / "no-such-compiler"))
    assert done.returncode == 0, done.stderr
    assert libraries == []


def test_decoders_use_no_format_that_depends_on_the_building_python():
    """`y#` in an extension that Python 3.13 or later has built fails in earlier ones, limited API or not."""
    sources = [*(ROOT / "src").rglob("*.c")]
    assert sources
    used = [found for path in sources for found in re.findall(r'"[^"\n]*[szyu]#[^"\n]*"', path.read_text())]
    assert used == ['"y#"']  # the comment that says so
