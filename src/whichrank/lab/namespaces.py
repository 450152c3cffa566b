"""A process enters a host of the lab: its network, its name, its /etc/hosts. Standard library only, Linux only."""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path

NETWORK = 0x40000000
NAME = 0x04000000
MOUNTS = 0x00020000
_PRIVATE, _RECURSIVE, _BIND = 1 << 18, 1 << 14, 1 << 12


def enter(namespace: str, name: str, hosts_file: Path | None = None) -> None:
    """Become a process of that host: for the calling thread and those that it starts afterwards."""
    join_network(namespace)
    _call("unshare", NAME | MOUNTS)
    socket.sethostname(name)
    # Without this, what is mounted below would be seen by everybody.
    _mount("none", "/", "", _PRIVATE | _RECURSIVE)
    if hosts_file is not None:
        _mount(str(hosts_file), "/etc/hosts", "", _BIND)
    # Interfaces below /sys/class/net are those of the network in which it was mounted.
    _mount("sysfs", "/sys", "sysfs", 0)


def join_network(namespace: str) -> None:
    """The calling thread sees the interfaces of that namespace from now on."""
    handle = os.open(f"/run/netns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("setns", handle, NETWORK)
    finally:
        os.close(handle)


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    _call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None)


def _call(function: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")
