"""Where a drill happens, and that nothing of it stays: processes, mounts, namespaces, shared memory, the folder.

Every process of a drill carries the folder's name in its environment, everything else carries its id: so a drill
that was ended in the middle can be cleaned up by another process, at once by the guardian or by the next drill.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from whichrank.evidence.collectors import processes
from whichrank.lab import control_groups
from whichrank.lab.workloads.plan import FOLDER

PREFIX = "whichrank-drill-"
END_S = 10.0
START_S = 2.0
"""How long a process may take to replace its program on a busy machine."""


def make() -> Path:
    """A fresh folder that belongs to this process."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    row = processes.stat(os.getpid())
    owner = {"realm": processes.realm(), "pid": os.getpid(), "start_ticks": row.start_ticks if row else 0}
    (folder / "owner.json").write_text(json.dumps(owner), encoding="utf-8")
    _made.append(folder)
    for name in ("code", "progress", "tmp"):
        (folder / name).mkdir()
    return folder


def name_of(folder: Path) -> str:
    """The id that namespaces and control groups of this drill carry."""
    return folder.name.removeprefix(PREFIX)


def tidy(folder: Path, *, keep: bool = False) -> None:
    """End and remove all that belongs to a drill; may be called again. With `keep` the files stay."""
    for mount in _mounts_below(folder):
        # A process that writes to a frozen file system does not end.
        subprocess.run(["fsfreeze", "--unfreeze", mount], capture_output=True, check=False)  # noqa: S603, S607
    pids = _end_processes(folder)
    for pid in pids:
        for left in Path("/dev/shm").glob(f"torch_{pid}_*"):  # noqa: S108 - torch's own names
            left.unlink(missing_ok=True)
    for mount in _mounts_below(folder):
        subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)  # noqa: S603, S607
    _remove_namespaces(name_of(folder))
    control_groups.remove(folder.name)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)


_made: list[Path] = []


def tidy_own() -> None:
    """Clean up what this process has made and not tidied yet."""
    for folder in _made:
        if folder.exists():
            tidy(folder)


def sweep() -> list[Path]:
    """Clean up after drills whose owner has gone; returns their folders."""
    found = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            if folder.stat().st_uid != os.geteuid():
                continue
            owner = json.loads((folder / "owner.json").read_text(encoding="utf-8"))
            elsewhere = owner["realm"] != processes.realm()
            if elsewhere or processes.same(int(owner["pid"]), int(owner["start_ticks"])):
                continue
        except (OSError, ValueError, KeyError, TypeError):
            continue
        tidy(folder)
        found.append(folder)
    return found


def guardian() -> subprocess.Popen[bytes]:
    """A process that sweeps when this one has gone, however it went; closing its input ends it."""
    return subprocess.Popen(
        [sys.executable, "-m", "whichrank.lab.guardian"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _members(folder: Path) -> tuple[list[int], bool]:
    """The processes of a drill; and whether some process is just starting its program: whose it is shows later."""
    me, mark = os.getpid(), str(folder)
    members, starting = [], False
    for pid, row in processes.everybody().items():
        if pid == me or row.state in "ZX":
            continue
        environment = processes.environ(pid)
        if environment.get(FOLDER) == mark:
            members.append(pid)
        starting = starting or (not environment and _starting(pid))
    return members, starting


def _starting(pid: int) -> bool:
    """In the middle of exec a process has a program, and neither arguments nor an environment yet."""
    here = processes.PROC / str(pid)
    try:
        (here / "exe").readlink()
        return not (here / "cmdline").read_bytes()
    except OSError:  # a thread of the kernel, or gone
        return False


def _end_processes(folder: Path) -> list[int]:
    ended: list[int] = []
    began = time.monotonic()
    while time.monotonic() < began + END_S:
        members, starting = _members(folder)
        if not members and not (starting and time.monotonic() < began + START_S):
            break
        for pid in members:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        ended += members
        time.sleep(0.1 if members else 0.01)
    return ended


def _mounts_below(folder: Path) -> list[str]:
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    points = [line.split()[4] for line in lines]
    return sorted((point for point in points if point.startswith(f"{folder}/")), reverse=True)


def _remove_namespaces(name: str) -> None:
    for path in Path("/run/netns").glob(f"*{name}*"):
        subprocess.run(["ip", "netns", "del", path.name], capture_output=True, check=False)  # noqa: S603, S607
        shutil.rmtree(Path("/etc/netns") / path.name, ignore_errors=True)
