"""Other tools that name a culprit, one file each, scored on the same bundles. Files are discovered.

A peer is a module with `NAME`, `version()`, `lacking()` (why it can't run here; empty where it can) and
`answer(folder)`: what it says of the evidence in a folder, an `Answer` without ranks where it says nothing.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from whichrank.lab.truth import Answer


class Peer(Protocol):
    """One other tool."""

    NAME: str

    def version(self) -> str: ...

    def lacking(self) -> str: ...

    def answer(self, folder: Path) -> Answer: ...


def present() -> tuple[list[Peer], list[tuple[str, str]]]:
    """The peers that run here, and for the others why not."""
    files = sorted(file.stem for file in Path(__file__).parent.glob("*.py") if not file.stem.startswith("_"))
    modules = [cast("Peer", import_module(f"{__name__}.{name}")) for name in files]
    reasons = {module.NAME: module.lacking() for module in modules}
    here = [module for module in modules if not reasons[module.NAME]]
    return here, [(name, why) for name, why in reasons.items() if why]
