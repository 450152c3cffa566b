"""Several NCCL libraries of different versions could be loaded.

What it finds: more than one libnccl.so.2 among LD_PRELOAD, torch's own, LD_LIBRARY_PATH and the system, with
different versions, where one that is not torch's comes first.

Why it happens: an image brings a system NCCL, pip brings another. Which one is loaded depends on paths, and hosts may
differ.

How it decides: by the version text inside each library, in the order in which the loader would find them.

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
    forced = [lib for lib in found if lib.get("origin") in ("LD_PRELOAD", "LD_LIBRARY_PATH")]
    for library in forced:
        if ours is not None and library.get("version") != ours.get("version"):
            version = library.get("version") or "of unknown version"
            words = f"{library.get('origin')} has NCCL {version}, torch brings {ours.get('version')}"
            return unhealthy(text(library, "version"), words, severity="warning")
    return healthy(text(first, "version") or None, text(first, "path"))
