"""The TCP sockets of some processes, by /proc: which ports a job uses. Python 3.8, standard library alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import NamedTuple

_LISTEN, _ESTABLISHED = "0A", "01"
_ANYWHERE = ("0" * 8, "0" * 32)
_MOST = 64 << 20


class JobSocket(NamedTuple):
    """One socket of a process."""

    pid: int
    port: int
    peer_port: int
    listens: bool
    established: bool
    anywhere: bool
    """Bound to every address of the host."""


def of(pids: Iterable[int]) -> list[JobSocket]:
    """The TCP sockets of these processes; nothing of a process that may not be looked at."""
    owners: dict[str, int] = {}
    spaces: dict[str, int] = {}
    for pid in pids:
        for inode in _inodes(pid):
            owners[inode] = pid
        with contextlib.suppress(OSError):
            spaces.setdefault(os.readlink(f"/proc/{pid}/ns/net"), pid)  # noqa: PTH115
    found = []
    for pid in spaces.values():
        for name in ("tcp", "tcp6"):
            for row in _rows(f"/proc/{pid}/net/{name}"):
                owner = owners.get(row[9])
                if owner is not None:
                    found.append(_socket(owner, row))
    return found


def _socket(pid: int, row: list[str]) -> JobSocket:
    (address, port), (_, peer), state = row[1].split(":"), row[2].split(":"), row[3]
    listens, established = state == _LISTEN, state == _ESTABLISHED
    return JobSocket(pid, int(port, 16), int(peer, 16), listens, established, address in _ANYWHERE)


def _inodes(pid: int) -> list[str]:
    folder, found = f"/proc/{pid}/fd", []
    try:
        numbers = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []
    for number in numbers:
        with contextlib.suppress(OSError):
            target = os.readlink(f"{folder}/{number}")  # noqa: PTH115
            if target.startswith("socket:["):
                found.append(target[8:-1])
    return found


def _rows(path: str) -> list[list[str]]:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:  # noqa: PTH123
            lines = stream.read(_MOST).splitlines()[1:]
    except OSError:
        return []
    rows = [line.split() for line in lines]
    return [row for row in rows if len(row) > 9 and row[1].count(":") == 1 and row[2].count(":") == 1]
