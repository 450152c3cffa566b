"""The collector as it travels: the modules that it needs in one zip archive, and the words that start it.

A node needs a shell and Python 3.8; nothing is written to its disks. The modules are those of this installation, found
by following their imports, so a node never runs another version.
"""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import whichrank
from whichrank.run.first_response.reduce_there import PACKAGE

ENTRY = "whichrank.run.first_response.on_node"
OLDEST = (3, 8)
_PYTHONS = (
    "python3", *(f"python3.{minor}" for minor in range(16, OLDEST[1] - 1, -1)), "python",
    "/usr/libexec/platform-python", "/opt/conda/bin/python3",
)  # fmt: skip
_TOO_OLD = 42
_READS = ("model", "facts", "records", "fleet", "evidence", "flows", "source", "timeline", "verdict")
"""Packages that read evidence."""
_SUFFIXES = (".py", ".csv", ".txt", ".toml", ".yaml", ".yml", ".json", ".md")

# Python's part of the start, for any Python 3: the archive is the beginning of standard input, and lives in memory.
_START = f"""
import os, sys
if sys.version_info < {OLDEST}: sys.exit({_TOO_OLD})
size = int(sys.argv[1])
data = sys.stdin.buffer.read(size)
if len(data) != size: sys.exit("the collector arrived in part only")
try:
    handle = os.memfd_create("whichrank")
    path = "/proc/self/fd/%d" % handle
except OSError:
    import tempfile
    handle, path = tempfile.mkstemp(suffix=".zip")
with open(handle, "wb", closefd=False) as archive: archive.write(data)
sys.path.insert(0, path)
from whichrank_start import main
main()
"""
# The shell's part: the first Python that is new enough.
_FIND = f"""
for python do
  command -v "$python" >/dev/null 2>&1 || continue
  "$python" -I -S -c "$START" "$SIZE"
  code=$?
  [ $code = {_TOO_OLD} ] || exit $code
done
echo "there is no Python {OLDEST[0]}.{OLDEST[1]} or newer" >&2
exit 127
"""
# What modules written for Python 3.10 use, for those before it. Syntax is kept to 3.8 by a test.
_SHIM = f"""
import sys


def main():
    if sys.version_info < (3, 10):
        import builtins, dataclasses, os, pathlib

        plain, pairs = dataclasses.dataclass, zip
        dataclasses.dataclass = lambda *a, slots=False, **k: plain(*a, **k)
        builtins.zip = lambda *a, strict=False: pairs(*a)
        if not hasattr(pathlib.Path, "readlink"):
            pathlib.Path.readlink = lambda self: type(self)(os.readlink(self))
    from {ENTRY} import main

    main()
"""


def command(python: str | None, size: int) -> list[str]:
    """What to run on a node: it reads `size` bytes of archive, then its wishes, from standard input."""
    pythons = [python] if python else list(_PYTHONS)
    script = f"SIZE={size:d}\nSTART='{_START}'\nset --"
    for name in pythons:
        script += " '" + name.replace("'", "'\\''") + "'"
    return ["/bin/sh", "-c", script + _FIND]


@cache
def archive(*, reduces: bool = False) -> bytes:
    """The zip archive; with all that a node needs to reduce its evidence itself."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as box:
        box.writestr("whichrank_start.py", _SHIM)
        for name, path in sorted(modules().items()):
            place = name.replace(".", "/") + ("/__init__.py" if path.name == "__init__.py" else ".py")
            box.write(path, place)
        if reduces:
            box.writestr(PACKAGE, package(), zipfile.ZIP_STORED)
    return packed.getvalue()


@cache
def package() -> bytes:
    """The part of whichrank that reads evidence, as a zip archive."""
    packed, root = io.BytesIO(), Path(whichrank.__file__).parent
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as box:
        for path in sorted(root.rglob("*")):
            inside = path.relative_to(root)
            of_it = len(inside.parts) == 1 or inside.parts[0] in _READS
            if path.is_file() and of_it and "__pycache__" not in inside.parts and path.suffix in _SUFFIXES:
                box.write(path, f"whichrank/{inside.as_posix()}")
    return packed.getvalue()


@cache
def modules() -> dict[str, Path]:
    """Every module of whichrank that the collector may import, with its file."""
    found: dict[str, Path] = {}
    waiting = [ENTRY]
    while waiting:
        name = waiting.pop()
        if name in found or (path := _file(name)) is None:
            continue
        found[name] = path
        waiting.append(name.rpartition(".")[0])
        waiting += _imports(path)
    return found


def _file(name: str) -> Path | None:
    """Where a module lies; found without importing anything."""
    top, *parts = name.split(".")
    if top != "whichrank":
        return None
    place = Path(whichrank.__file__).parent.joinpath(*parts)
    found = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return found if found.is_file() else None


def _imports(path: Path) -> Iterator[str]:
    """What a file imports when it is loaded; `from package import name` may mean a module."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
