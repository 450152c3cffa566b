"""Builds the decoder in C from the sources of this checkout, with the flags that a test wants."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).parents[3] / "src/whichrank/evidence/pickle/_native.c"
COMPILER = shutil.which("cc") or shutil.which("gcc")
HEADERS = Path(sysconfig.get_paths()["include"])


def can_build() -> bool:
    return COMPILER is not None and (HEADERS / "Python.h").exists() and sys.platform == "linux"


def build(folder: Path, *flags: str) -> Path:
    library = folder / "_native.abi3.so"
    warnings = ("-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion", "-Werror")
    command = [str(COMPILER), "-std=c11", *warnings, *flags, "-shared", "-fPIC", f"-I{HEADERS}", "-o", str(library)]
    subprocess.run([*command, str(SOURCE)], check=True, capture_output=True, text=True)
    return library


def load(library: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("whichrank.evidence.pickle._native", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
