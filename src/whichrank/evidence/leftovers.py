"""What dead jobs leave behind on this host: ranks without a launcher, shared-memory segments, lock files."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from whichrank.evidence.collectors import processes
from whichrank.evidence.probes.memory import stale_segments
from whichrank.evidence.probes.processes import ancestors, is_orphan

SHM = Path("/dev/shm")  # noqa: S108 - where segments are
Kind = Literal["process", "segment", "lock"]
_END_S = 5.0
_LOCK_S = 60.0
"""A lock merely exists while its build runs: one that was made just now is left alone."""


class Leftover(Struct, frozen=True):
    """One thing, with all that is needed to see that it is still the same when it is removed."""

    kind: Kind
    name: str
    owner: int
    detail: str
    bytes: int = 0
    pid: int = 0
    start_ticks: int = 0
    inode: int = 0

    @property
    def ours(self) -> bool:
        return self.owner == os.geteuid()


def find(shm: Path = SHM, caches: list[Path] | None = None) -> list[Leftover]:
    """Everything on this host that looks left behind, whoever owns it."""
    return [*_orphans(), *_segments(shm), *_locks(caches if caches is not None else _caches())]


def _orphans() -> Iterator[Leftover]:
    everyone = processes.everybody()
    own = {os.getpid(), *ancestors(os.getpid(), everyone)}
    for pid, row in everyone.items():
        if pid in own or row.state in "ZX" or not is_orphan(pid, row, everyone):
            continue
        with suppress(OSError):
            owner = Path(f"/proc/{pid}").stat().st_uid
            rank = processes.environ(pid).get("RANK", "?")
            words = f"rank {rank} whose launcher is gone: {processes.command(pid)[:120]}"
            yield Leftover("process", str(pid), owner, words, pid=pid, start_ticks=row.start_ticks)


def _segments(shm: Path) -> Iterator[Leftover]:
    for found in stale_segments(shm):
        file = shm / found["name"]
        with suppress(OSError):
            if found["certain"]:
                words = "no process has it mapped or open"
                yield Leftover("segment", str(file), found["uid"], words, found["bytes"], inode=file.stat().st_ino)


def _caches() -> list[Path]:
    home = Path.home()
    wanted = [os.environ.get("TORCH_EXTENSIONS_DIR"), str(home / ".cache/torch_extensions"), str(home / ".triton")]
    return [Path(folder) for folder in wanted if folder and Path(folder).is_dir()]


def _locks(folders: list[Path]) -> Iterator[Leftover]:
    """Lock files of torch's extension builds: a killed build leaves `lock`, and the next one waits forever."""
    for folder in folders:
        for file in sorted(folder.glob("*/*/lock"))[:1000] + sorted(folder.glob("*/lock"))[:1000]:
            with suppress(OSError):
                state = file.stat()
                if time.time() - state.st_mtime > _LOCK_S and not _is_open(file):
                    words = "lock of a build that no process has open"
                    yield Leftover("lock", str(file), state.st_uid, words, state.st_size, inode=state.st_ino)


def _is_open(file: Path) -> bool:
    """Whether any process has it open, or works inside its folder: torch's lock is a file that merely exists."""
    for pid in processes.everybody():
        with suppress(OSError):
            if Path(f"/proc/{pid}/cwd").readlink().is_relative_to(file.parent):
                return True
            for handle in Path(f"/proc/{pid}/fd").iterdir():
                if str(handle.readlink()) == str(file):
                    return True
    return False


def remove(left: Leftover) -> str:
    """Remove one, if it is still the same, ours, and used by nobody; the reason where it is not removed."""
    if not left.ours:
        return "belongs to another user"
    if left.kind == "process":
        return _end(left)
    file = Path(left.name)
    try:
        if file.is_symlink() or file.stat().st_ino != left.inode:
            return "is another one by now"
        again = (
            find(file.parent, [])
            if left.kind == "segment"
            else list(_locks([file.parent.parent, file.parent.parent.parent]))
        )
        if not any(found.name == left.name and found.inode == left.inode for found in again):
            return "is in use by now"
        file.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _end(left: Leftover) -> str:
    everyone = processes.everybody()
    row = everyone.get(left.pid)
    if row is None:
        return ""
    if row.start_ticks != left.start_ticks or not is_orphan(left.pid, row, everyone):
        return "is another one by now"
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(left.pid, number)
        deadline = time.monotonic() + _END_S
        while time.monotonic() < deadline:
            now = processes.stat(left.pid)
            if now is None or now.start_ticks != left.start_ticks or now.state in "ZX":
                return ""
            time.sleep(0.05)
    return "does not end"
