"""Parts that are written in C: optional, with the same in Python beside each."""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType


def built(name: str, version: int) -> ModuleType | None:
    """The extension, unless it was not built, is of another version, or WHICHRANK_NATIVE=0 switches it off."""
    if os.environ.get("WHICHRANK_NATIVE") == "0":
        return None
    try:
        module = import_module(name)
    except ImportError:
        return None
    return module if version == module.VERSION else None
