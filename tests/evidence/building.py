"""Builds the parts in C from the sources of this checkout, with the flags that a test wants."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

from tests.conftest import ROOT, command_environment

NATIVE, SCAN, LOOKS = "evidence.pickle._native", "evidence.readers.kineto._scan", "evidence.text._looks"
COMPILER = shutil.which("cc") or shutil.which("gcc")
HEADERS = Path(sysconfig.get_paths()["include"])
SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def can_build() -> bool:
    return COMPILER is not None and (HEADERS / "Python.h").exists() and sys.platform == "linux"


def build(part: str, folder: Path, *flags: str) -> Path:
    source = ROOT / "src/whichrank" / f"{part.replace('.', '/')}.c"
    library = folder / f"{source.stem}.abi3.so"
    warnings = ("-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion", "-Werror")
    command = [str(COMPILER), "-std=c11", *warnings, *flags, "-shared", "-fPIC", f"-I{HEADERS}", "-o", str(library)]
    subprocess.run([*command, str(source)], check=True, capture_output=True, text=True)
    return library


def load(part: str, library: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"whichrank.{part}", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_sanitized(part: str, folder: Path, code: str) -> None:
    """Run code with `built`, the part under the address and undefined-behaviour sanitizers: they find nothing."""
    library = build(part, folder, *SANITIZED)
    runtime = subprocess.run(
        [str(COMPILER), "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    start = (
        "from pathlib import Path; from tests.evidence import building\n"
        f"built = building.load({part!r}, Path({str(library)!r}))"
    )
    environment = {
        **command_environment(),
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "PYTHONMALLOC": "malloc",  # each object is then guarded by itself
    }
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-c", f"{start}\n{code}\nprint('clean')"],
        capture_output=True, text=True, timeout=900, env=environment, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "clean"
