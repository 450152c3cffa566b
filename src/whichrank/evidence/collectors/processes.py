"""Processes of this host by /proc: who they are, what they do, how they ended. Nothing is stopped or changed."""

from __future__ import annotations

import fcntl
import os
import platform
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
# Calls in which a thread waits for nothing outside its process, by their numbers (asm/unistd.h of each machine).
_CALLS = {
    "x86_64": {35: "sleep", 230: "sleep", 202: "lock", 23: "select", 270: "select", 61: "child", 247: "child"},
    "aarch64": {101: "sleep", 115: "sleep", 98: "lock", 72: "select", 260: "child", 95: "child"},
}
THREADS = 256
# ioctl and fields of <linux/pidfd.h>: kernels from 6.15 tell the exit code of a process that is gone.
_PIDFD_GET_INFO = 0xC040FF0B
_INFO_EXIT = 1 << 3
_INFO = struct.Struct("<QQIIIIIIIIIIII")  # mask, cgroup, pid, tgid, ppid, 8 x ids, exit code


@dataclass(frozen=True, slots=True)
class Stat:
    """A row of /proc/PID/stat."""

    pid: int
    state: str
    parent: int
    cpu_ticks: int
    start_ticks: int
    exit_status: int | None
    """As wait(2) has it; only while it is a zombie, and only for those who may know."""


def stat(pid: int) -> Stat | None:
    """The row of one process; None where it is gone."""
    try:
        fields = start_of(f"{PROC}/{pid}/stat", 4096).rpartition(b")")[2].split()
        state = fields[0].decode()
        status = int(fields[49]) if state in "ZX" and len(fields) > 49 else None
        return Stat(pid, state, int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[19]), status)
    except (OSError, ValueError, IndexError):
        return None


def start_of(path: str, size: int) -> bytes:
    """The first bytes of a small file: what is read for every rank every second is read by plain calls."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return os.read(handle, size)
    finally:
        os.close(handle)


def everybody() -> dict[int, Stat]:
    """All processes that can be seen."""
    found = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (row := stat(int(entry.name))) is not None:
            found[row.pid] = row
    return found


def below(root: int, everyone: dict[int, Stat]) -> list[int]:
    """The descendants of a process, parents first."""
    children: dict[int, list[int]] = {}
    for row in everyone.values():
        children.setdefault(row.parent, []).append(row.pid)
    found, waiting = [], [root]
    while waiting:
        for child in children.get(waiting.pop(0), []):
            if child not in found:
                found.append(child)
                waiting.append(child)
    return found


def same(pid: int, start_ticks: int) -> bool:
    """Whether this pid is still the process that started then."""
    row = stat(pid)
    return row is not None and row.start_ticks == start_ticks


def boot_id() -> str | None:
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def realm() -> str:
    """Where a pid means what it means here: this boot of this host, and this namespace. Containers may share a /tmp."""
    try:
        return f"{boot_id()}/{(PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return f"{boot_id()}/unknown"


def exit_status(pidfd: int, pid: int, start_ticks: int) -> int | None:
    """How a process ended, as wait(2) has it: from its last row, or from a kernel that remembers."""
    row = stat(pid)
    if row is not None and row.start_ticks == start_ticks and row.exit_status is not None:
        return row.exit_status
    buffer = bytearray(64)
    struct.pack_into("<Q", buffer, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, buffer)
    except OSError:
        return None
    values = _INFO.unpack_from(buffer)
    return values[-1] if values[0] & _INFO_EXIT else None


def outcome(status: int) -> tuple[int | None, int | None]:
    """Exit code and signal of a wait status; one of them is None."""
    number = status & 0x7F
    return (None, number) if number else ((status >> 8) & 0xFF, None)


def folder(pid: int) -> Path | None:
    """The folder that a process works in; None for a stranger's."""
    try:
        return (PROC / str(pid) / "cwd").readlink()
    except OSError:
        return None


def environ(pid: int) -> dict[str, str]:
    """What a process was started with; empty where that may not be known."""
    try:
        entries = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (entry.decode("utf-8", "backslashreplace").partition("=") for entry in entries)
    return {name: value for name, equals, value in pairs if equals}


def written_bytes(pid: int) -> int:
    """Bytes that a process has read and written so far; 0 where that may not be known."""
    return _moved(f"{PROC}/{pid}/io")


def thread_use(pid: int, thread: int) -> tuple[int, int]:
    """CPU ticks of one thread so far, and bytes that it has read and written; zeros where that may not be known."""
    place = f"{PROC}/{pid}/task/{thread}"
    try:
        fields = start_of(f"{place}/stat", 4096).rpartition(b")")[2].split()
        return int(fields[11]) + int(fields[12]), _moved(f"{place}/io")
    except (OSError, ValueError, IndexError):
        return 0, 0


def _moved(path: str) -> int:
    try:
        lines = start_of(path, 4096).decode("ascii").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar", "wchar")))
    except (OSError, ValueError, IndexError):
        return 0


def turns(pid: int) -> int | None:
    """How often the main thread of a process has left a processor so far; None where that may not be known."""
    lines = _text(pid, f"task/{pid}/status").splitlines()
    try:
        counts = [int(line.split()[1]) for line in lines if "ctxt_switches:" in line]
    except (ValueError, IndexError):
        return None
    return sum(counts) if counts else None


def rest(pid: int) -> str:
    """What the main thread of a process waits in: "sleep", "lock", "child", or "" for anything else, known or not."""
    try:
        number, first, *_ = _text(pid, "syscall").split()
        call = _CALLS.get(platform.machine(), {}).get(int(number), "")
    except ValueError:  # it runs, is in no call, or this may not be read
        return ""
    # With no descriptor to wait for, select is a sleep: Python up to 3.10 sleeps so.
    return ("sleep" if first == "0x0" else "") if call == "select" else call


def table(pids: Iterable[int]) -> str:
    """Processes and their threads as ps would show them, with the kernel function they sleep in."""
    rows = ["PID PPID STAT WCHAN COMMAND"]
    for pid in pids:
        row = stat(pid)
        if row is not None:
            rows.append(f"{pid} {row.parent} {row.state} {_wchan(pid)} {command(pid)[:200]}")
    return "\n".join(rows) + "\n"


def command(pid: int) -> str:
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
        return raw.replace(b"\0", b" ").decode("utf-8", "replace").strip() or f"[{_text(pid, 'comm').strip()}]"
    except OSError:
        return "?"


def status(pid: int) -> str:
    """The files of /proc that say how a process is: status, then each thread's state."""
    parts = [_text(pid, "status")]
    try:
        threads = sorted((entry.name for entry in (PROC / str(pid) / "task").iterdir()), key=int)[:THREADS]
    except (OSError, ValueError):
        threads = []
    for thread in threads:
        comm, wchan = _text(pid, f"task/{thread}/comm").strip(), _text(pid, f"task/{thread}/wchan").strip()
        state = next(iter(_text(pid, f"task/{thread}/stat").rpartition(")")[2].split()), "?")
        parts.append(f"thread {thread} {comm} {state} {wchan or '-'}\n")
    return "".join(parts)


def kernel_stacks(pid: int) -> str:
    """Where every thread is inside the kernel, for those who may know (root); "" for others."""
    parts = []
    try:
        threads = sorted((entry.name for entry in (PROC / str(pid) / "task").iterdir()), key=int)[:THREADS]
    except (OSError, ValueError):
        threads = []
    for thread in threads:
        stack, call = _text(pid, f"task/{thread}/stack"), _text(pid, f"task/{thread}/syscall").strip()
        if stack or call:
            comm = _text(pid, f"task/{thread}/comm").strip()
            parts.append(f"thread {thread} {comm}: system call {call or '?'}\n{stack}")
    return "".join(parts)


def limits(pid: int) -> str:
    return _text(pid, "limits")


def _wchan(pid: int) -> str:
    return _text(pid, "wchan").strip().replace("0", "", 1) or "-"


def _text(pid: int, name: str) -> str:
    try:
        return (PROC / str(pid) / name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
