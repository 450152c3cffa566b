"""A cell for the rehearsal: what it writes goes into memory and is thrown away, and there is no network but loopback.

With Linux namespaces: every file system is covered by an overlay whose upper layer is a tmpfs. Where namespaces are
not allowed, an audit hook refuses writes outside the scratch copy and connections to other hosts.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

NEW_MOUNTS, NEW_USERS, NEW_NETWORK = 0x00020000, 0x10000000, 0x40000000
PRIVATE, RECURSIVE, BIND, REMOUNT, READ_ONLY = 1 << 18, 1 << 14, 1 << 12, 1 << 5, 1
KEPT = ("/proc", "/sys", "/dev")
SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x41


class Ground:
    root = -1
    """The root folder below the cover."""


def leave_network() -> str:
    """Into a network namespace of our own that has loopback alone; "" or why not."""
    user, group = os.geteuid(), os.getegid()
    try:
        call("unshare", NEW_NETWORK if user == 0 else NEW_USERS | NEW_NETWORK | NEW_MOUNTS)
        if user != 0:
            Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
        raise_loopback()
    except OSError as error:
        return str(error)
    return ""


def raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, SET_FLAGS, struct.pack("16sh14x", b"lo", UP_AND_RUNNING))


def cover_files(room: Path, size: str = "50%") -> str:
    """Cover every file system by an overlay that is thrown away; "" or why not. Called once for each rehearsal."""
    try:
        call("unshare", NEW_MOUNTS)
        mount("none", "/", "", PRIVATE | RECURSIVE)
        Ground.root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        mount("tmpfs", str(room), "tmpfs", 0, f"size={size}")
        root = room / "root"
        root.mkdir()
        overlay("/", root, room, 0)
        for number, place in enumerate(mounts(room), 1):
            cover(place, root, room, number)
        for place in KEPT:
            mount(place, f"{root}{place}", "", BIND | RECURSIVE)
        mount("tmpfs", f"{root}/dev/shm", "tmpfs", 0, f"size={size}")  # noqa: S108 - the cell's own
        here = Path.cwd()
        os.chroot(root)
        os.chdir(here)
    except OSError as error:
        return str(error)
    return ""


def uncover() -> None:
    """Back to the file systems below the cover, in a process that gets a cover of its own next."""
    os.fchdir(Ground.root)
    os.chroot(".")


def mounts(room: Path) -> list[str]:
    """Mount points below the root that are not kept as they are, outer ones first."""
    found: set[str] = set()
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        place = line.split()[4].encode("utf-8").decode("unicode_escape")
        inside = any(place == kept or place.startswith(f"{kept}/") for kept in (*KEPT, str(room)))
        if place != "/" and not inside:
            found.add(place)
    return sorted(found)


def cover(place: str, root: Path, room: Path, number: int) -> None:
    """An overlay where the file system allows it, else the same files read-only."""
    target = Path(f"{root}{place}")
    try:
        if target.is_dir():
            overlay(place, target, room, number)
            return
    except OSError:
        pass
    mount(place, str(target), "", BIND)
    mount("none", str(target), "", BIND | REMOUNT | READ_ONLY)


def overlay(lower: str, target: Path, room: Path, number: int) -> None:
    upper, work = room / f"upper{number}", room / f"work{number}"
    upper.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    try:
        mount("overlay", str(target), "overlay", 0, options)
    except OSError:
        mount("overlay", str(target), "overlay", 0, options + ",userxattr")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode() or None)


def call(function: str, *arguments: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def guard(allowed: tuple[str, ...], *, network: bool) -> None:
    """Refuse writes outside these folders, and connections to other hosts, from Python code."""
    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    changing = {
        "os.mkdir",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "os.symlink",
        "os.link",
        "os.truncate",
        "shutil.rmtree",
    }

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect" and network and isinstance(arguments[1], tuple):
            if str(arguments[1][0]) not in ("127.0.0.1", "::1", "localhost"):
                raise PermissionError("a rehearsal does not talk to other hosts")
            return
        opens = event == "open" and isinstance(arguments[2], int) and arguments[2] & writes
        if (opens or event in changing) and isinstance(arguments[0], (str, bytes)):
            check(os.fsdecode(arguments[0]))

    def check(path: str) -> None:
        real = os.path.realpath(path)
        if not real.startswith((*allowed, "/dev/", "/proc/")):
            raise PermissionError(f"a rehearsal does not write outside its scratch copy: {path}")

    sys.addaudithook(hook)
