"""A rank goes to its host: a network namespace with a name and an /etc/hosts of its own. Linux, as root."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn

_NETWORK, _NAME, _MOUNTS = 0x40000000, 0x04000000, 0x00020000
_PRIVATE, _RECURSIVE, _BIND = 1 << 18, 1 << 14, 1 << 12


def enter(words: Sequence[str]) -> NoReturn:
    """Become a process of that host (namespace, name, hosts file) and begin the program anew there.

    Only then all its threads are on that host: those that have begun already would stay behind.
    """
    namespace, name, hosts_file = words
    join_network(namespace)
    _call("unshare", _NAME | _MOUNTS)
    socket.sethostname(name)
    # Without this, what is mounted below would be seen by everybody.
    _mount("none", "/", "", _PRIVATE | _RECURSIVE)
    _mount(hosts_file, "/etc/hosts", "", _BIND)
    # Interfaces below /sys/class/net are those of the network in which it was mounted.
    _mount("sysfs", "/sys", "sysfs", 0)
    os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - the same program


def join_network(namespace: str) -> None:
    """The calling thread, and those that it starts, see the interfaces of that namespace from now on."""
    handle = os.open(f"/run/netns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("setns", handle, _NETWORK)
    finally:
        os.close(handle)


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    _call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None)


def _call(function: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")
