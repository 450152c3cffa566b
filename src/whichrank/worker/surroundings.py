"""What a process leaves about its surroundings: where its output goes, its connections, its network.

Copied into the job beside `startup.py`: standard library only. Whatever fails in here fails alone.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress

from whichrank.worker import groups, network, sockets, tracing

START = "start"
"""Stands for the token of a request in what is written before the first one."""


def settle(folder: str, name: str) -> None:
    """Once, when the process has begun."""
    with suppress(Exception):
        tracing.permit(os.environ.get(tracing.WATCHER, ""))
    with suppress(Exception):
        write(f"{folder}/{name}.places", json.dumps(places()))
    with suppress(Exception):
        write_network(folder, START)


def answer(folder: str, name: str, token: str, asker: str) -> None:
    """With every request: connections and interfaces, and leave for the one who asks to look at the stacks."""
    with suppress(Exception):
        tracing.permit(asker)
    with suppress(Exception):
        write(f"{folder}/{name}.{token}.sockets", sockets.own())
    with suppress(Exception):
        write_network(folder, token)
    with suppress(Exception):
        write_groups(folder, name)


def write_groups(folder: str, name: str) -> None:
    """Who is in which group; nothing before there is one."""
    told = groups.own()
    if told:
        write(f"{folder}/{name}.groups", told)


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
