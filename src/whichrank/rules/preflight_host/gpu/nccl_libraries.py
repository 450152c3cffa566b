"""Another NCCL library than torch's own is loaded, of another version.

What it finds: a libnccl.so.2 of LD_PRELOAD, LD_LIBRARY_PATH or the system that the linker gives to torch instead of
its own. A healthy answer has path and version of the library that is really loaded.

Why it happens: an image brings a system NCCL, pip brings another. Which one is loaded depends on paths, and hosts may
differ.

How it decides: the dynamic linker (ldd) says which library torch gets in this environment; its version is the text
inside it. Where there is no linker to ask, the libraries are taken in the order in which it would find them.

Example: `LD_PRELOAD has NCCL 2.18.5, torch brings 2.27.3`

Fix: remove one of them, or make all hosts load the same.

Limits: a job that changes LD_LIBRARY_PATH itself can't be foreseen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy
from whichrank.records.inspection import HostProbes, items, text

CODE = "PREH112"
CAUSE = "nccl-library-conflict"
CHECK = "nccl-library"
PROBE = "software"
FIX = ("Leave one NCCL library: unset LD_PRELOAD and LD_LIBRARY_PATH, or remove the system's.",)


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check | None:  # noqa: ARG001
    found = items(values, "nccl")
    if not found:
        return None
    first = found[0]
    ours = next((lib for lib in found if lib.get("origin") == "torch"), None)
    # Where the linker told which one is loaded, the others don't matter.
    suspects = [first] if first.get("loaded") else found
    for library in suspects:
        forced = library.get("origin") in ("LD_PRELOAD", "LD_LIBRARY_PATH", "linker", "system")
        forced = forced and (library.get("loaded") or library.get("origin") in ("LD_PRELOAD", "LD_LIBRARY_PATH"))
        if forced and ours is not None and library.get("version") != ours.get("version"):
            version = library.get("version") or "of unknown version"
            where = f"{library.get('origin')} has NCCL {version} ({library.get('path')})"
            words = f"{where}, torch brings {ours.get('version')}"
            return unhealthy(text(library, "version"), words, severity="warning")
    return healthy(text(first, "version") or None, text(first, "path"))
