"""What a process leaves about its surroundings: where its output goes, its connections, its network.

Copied into the job beside `startup.py`: standard library only. Whatever fails in here fails alone.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress

from whichrank.worker import groups, network, sockets, variables

WATCHER = "WHICHRANK_WATCHER"
"""The variable that carries the watcher's pid into the job."""
_PR_SET_PTRACER = 0x59616D61
END = "end"
START = "start"
"""Stands for the token of a request in what is written before the first one."""


def permit_tracing(pid: str) -> bool:
    """Let the watcher look at stacks: with Yama's ptrace_scope 1 only a named process may trace, and what it starts."""
    if not pid.isdecimal() or not 1 < int(pid) < 1 << 31:
        return False
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return bool(prctl(_PR_SET_PTRACER, ctypes.c_ulong(int(pid)), 0, 0, 0) == 0)


def settle(folder: str, name: str) -> None:
    """Once, when the process has begun."""
    with suppress(Exception):
        permit_tracing(os.environ.get(WATCHER, ""))
    with suppress(Exception):
        write(f"{folder}/{name}.places", json.dumps(places()))
    with suppress(Exception):
        write_network(folder, START)


def answer(folder: str, name: str, token: str, asker: str) -> None:
    """With every request: connections and interfaces, and leave for the one who asks to look at the stacks."""
    with suppress(Exception):
        permit_tracing(asker)
    with suppress(Exception):
        write(f"{folder}/{name}.{token}.sockets", sockets.own())
    with suppress(Exception):
        write_network(folder, token)
    with suppress(Exception):
        write_groups(folder, name)
    with suppress(Exception):
        write_variables(folder, name, token)


def write_groups(folder: str, name: str) -> None:
    """Who is in which group; nothing before there is one."""
    told = groups.own()
    if told:
        write(f"{folder}/{name}.groups", told)


def write_variables(folder: str, name: str, token: str) -> None:
    """What the training code holds where it stands; nothing before there is a group."""
    rank = groups.own_rank()
    told = variables.own(rank) if rank is not None else ""
    if told:
        write(f"{folder}/{name}.{token}.variables", told)


def write_variables_of(folder: str, name: str, rank: int, error: BaseException) -> None:
    """What the training code held where it failed."""
    told = variables.at_failure(rank, error) if rank >= 0 else ""
    if told:
        write(f"{folder}/{name}.{END}.variables", told)


def places() -> dict[str, object]:
    """Files that others write about this process, and those that its output goes to, with their size so far."""
    output = []
    for descriptor in (1, 2):
        with suppress(OSError):
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - pathlib is not imported into a job
                output.append({"path": path, "inode": status.st_ino, "size": status.st_size})
    return {
        "error_file": os.environ.get("TORCHELASTIC_ERROR_FILE"),
        "worker_server": os.environ.get("TORCH_WORKER_SERVER_SOCKET"),
        "output": output,
    }


def write_network(folder: str, token: str) -> None:
    """The namespace is the same for many processes: the first of them tells about it."""
    path = f"{folder}/net.{network.namespace()}.{token}"
    if not os.path.exists(path):  # noqa: PTH110
        write(path, network.own(START if token == START else "now"))


def write(path: str, text: str) -> None:
    """Whole or not at all."""
    draft = f"{path}.{os.getpid()}.part"
    with open(draft, "w", encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
        stream.write(text)
    os.replace(draft, path)  # noqa: PTH105
