"""The private folder of a watched job: the hook that gets into its processes, and what they leave there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from whichrank.model import last_words as layout
from whichrank.worker import startup

HOOK = "hook"
PACKAGE = "_whichrank_inside"
_COPIED = ("model/last_words.py", "worker/lastwords.py", "worker/startup.py")

# Runs in any Python of the job. The site's own sitecustomize then runs as if this one were not there.
_SITECUSTOMIZE = '''\
"""Put here by `whichrank run` for one job; not part of the site."""
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
try:
    from {package} import startup
    startup.begin()
except Exception:
    pass
sys.path[:] = [p for p in sys.path if os.path.abspath(p) != _here]


def _chain():
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_chain()
'''


def make() -> Path:
    """A fresh folder that only this user can read, with the hook in it."""
    folder = Path(tempfile.mkdtemp(prefix="whichrank-"))
    install(folder)
    return folder


def install(folder: Path) -> None:
    """Copy what runs inside the job: its Python need not have whichrank, and must not get another one."""
    inside = folder / HOOK / PACKAGE
    inside.mkdir(parents=True)
    (inside / "__init__.py").write_text("")
    home = Path(layout.__file__).parent.parent
    for name in _COPIED:
        text = (home / name).read_text(encoding="utf-8")
        for room in ("model", "worker"):
            text = text.replace(f"from whichrank.{room}.", f"from {PACKAGE}.")
            text = text.replace(f"from whichrank.{room} ", f"from {PACKAGE} ")
        (inside / Path(name).name).write_text(text, encoding="utf-8")
    (folder / HOOK / "sitecustomize.py").write_text(_SITECUSTOMIZE.format(package=PACKAGE), encoding="utf-8")


def variables(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """What lets the hook in: its folder first on the path of every Python that the job starts."""
    old = environ.get("PYTHONPATH")
    path = os.pathsep.join([str(folder / HOOK), *([old] if old else [])])
    return {"PYTHONPATH": path, startup.FOLDER: str(folder)}


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
