"""Puts the hooks in place at the moment at which torch has been imported, before the job's own code sees it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

MODE = "WHICHRANK_GUARD"
"""The variable that asks for a guard: "on" or "strict"."""


class _Finder:
    """First among the finders: finds torch as the others do, and has its loader call us when it is done."""

    def __init__(self, folder: str, name: str, mode: str) -> None:
        self.folder, self.name, self.mode = folder, name, mode

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        with suppress(ValueError):
            sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                with suppress(Exception):
                    self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader: Any) -> None:
        original = loader.exec_module

        def exec_module(module: Any) -> None:
            original(module)
            with suppress(AttributeError):
                del loader.exec_module
            try:
                begin(self.folder, self.name, self.mode)
            except Exception as error:  # noqa: BLE001 - a job that can't be guarded runs on unguarded
                with suppress(Exception):
                    _say_off(f"{self.folder}/{self.name}.guard", error)

        loader.exec_module = exec_module


def await_torch(folder: str, name: str) -> None:
    """Called when the interpreter starts."""
    mode = os.environ.get(MODE, "")
    if mode in ("on", "strict") and "torch" not in sys.modules:
        sys.meta_path.insert(0, _Finder(folder, name, mode))


def _say_off(path: str, error: BaseException) -> None:
    import json

    with open(path, "a", encoding="utf-8") as stream:  # noqa: PTH123
        stream.write(json.dumps({"t": "off", "why": f"{type(error).__name__}: {error}"[:300]}) + "\n")


def begin(folder: str, name: str, mode: str) -> Any:
    from whichrank.worker.guard.hooks import install
    from whichrank.worker.guard.session import Guard

    return install(Guard(folder, f"{folder}/{name}.guard", mode))
