"""Control groups of a drill, in both versions of the kernel's interface."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def can_limit_memory() -> bool:
    """Whether this user may make a group with a limit of memory."""
    parent = _parent()
    return parent is not None and os.access(parent, os.W_OK)


def limit_memory(name: str, most: int) -> Path:
    """A new group whose processes may have so many bytes, and no swap."""
    parent = _parent()
    if parent is None:
        raise FileNotFoundError("no control group with a memory controller")
    group = parent / name
    group.mkdir()
    # The second is the limit of swap alone in version 2, of memory and swap together in version 1.
    limits = {"memory.max": most, "memory.swap.max": 0}
    if not _unified():
        limits = {"memory.limit_in_bytes": most, "memory.memsw.limit_in_bytes": most}
    for file, value in limits.items():
        with contextlib.suppress(FileNotFoundError):  # a kernel that does not account for swap
            (group / file).write_text(str(value), encoding="ascii")
    return group


def join(group: Path, pid: int) -> None:
    (group / "cgroup.procs").write_text(str(pid), encoding="ascii")


def remove(name: str) -> None:
    """All groups whose name begins so; one that still has processes stays."""
    for pattern in (f"{name}*", f"*/{name}*"):
        for group in ROOT.glob(pattern):
            with contextlib.suppress(OSError):
                group.rmdir()


def _unified() -> bool:
    return (ROOT / "cgroup.controllers").exists()


def _parent() -> Path | None:
    """Where a group with a limit of memory can be made; in version 2 the controller must have been handed down."""
    if not _unified():
        parent = ROOT / "memory"
        return parent if (parent / "cgroup.procs").exists() else None
    try:
        handed = (ROOT / "cgroup.subtree_control").read_text(encoding="ascii").split()
    except OSError:
        return None
    return ROOT if "memory" in handed else None
