"""Records of one kind, without loading the module of a kind that nobody has read: a short run is mostly loading."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any


def of_kind(pile: Iterable[Any], kind: str) -> list[Any]:
    """Those of a class, named as `module.Class` from this package on: where its module is not loaded there are none."""
    module, _, name = kind.rpartition(".")
    loaded = sys.modules.get(f"{__package__}.{module}")
    return [] if loaded is None else [r for r in pile if isinstance(r, getattr(loaded, name))]
