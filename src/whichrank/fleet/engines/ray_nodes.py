"""The nodes of a running Ray cluster: one driver for all of them, and a light relay for every command.

The driver and what it needs of Ray live in a process of their own (`_ray_hub`), which ends with this one.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from whichrank.fleet.engines import Engine, _ray_relay
from whichrank.model.errors import UsageError

_START_S, _REACH_S = 120.0, 10.0


def engine(address: str = "auto") -> Engine:
    """`auto`, HOST:PORT of the cluster, or `ray://HOST:10001` for Ray's client server."""
    _reach(address)
    folder = Path(tempfile.mkdtemp(prefix="whichrank-ray-"))
    place = folder / "hub"
    hub = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "whichrank.fleet.engines._ray_hub", address, str(place)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    atexit.register(_end, hub, folder)
    nodes = _nodes(hub, address)

    def wrap(host: str, command: Sequence[str]) -> list[str]:
        relay = [sys.executable, "-S", "-E", str(_ray_relay.__file__), str(place)]
        return [*relay, nodes[host]["id"], "--", *command]

    return Engine("ray", tuple(nodes), wrap, addresses={name: node["address"] for name, node in nodes.items()})


def _reach(address: str) -> None:
    """Ray tries an address for minutes at which nobody answers."""
    where = urlsplit(address if "://" in address else f"//{address}")
    if where.port is None:
        return
    try:
        socket.create_connection((where.hostname or "", where.port), _REACH_S).close()
    except OSError as error:
        raise UsageError(
            f"no Ray cluster at {address}: {error.strerror or error}", "Does `ray status` see it?"
        ) from error


def _nodes(hub: subprocess.Popen[bytes], address: str) -> dict[str, dict[str, str]]:
    said = b""
    while said.count(b"\n") < 2 and hub.stdout is not None and select.select([hub.stdout], [], [], _START_S)[0]:
        piece = hub.stdout.read1(1 << 20)  # type: ignore[attr-defined]
        if not piece:
            break
        said += piece
    try:
        answer = json.loads(said.partition(b"\n")[0])
    except ValueError:
        answer = {"error": f"no Ray cluster at {address}: no answer within {_START_S:.0f} s"}
    if "nodes" not in answer:
        hint = "pip install 'whichrank[ray]'" if "not installed" in answer["error"] else "Does `ray status` see it?"
        raise UsageError(str(answer["error"]), hint)
    found: dict[str, dict[str, str]] = answer["nodes"]
    return found


def _end(hub: subprocess.Popen[bytes], folder: Path) -> None:
    if hub.stdin is not None:
        with contextlib.suppress(OSError):
            hub.stdin.close()
    try:
        hub.wait(5.0)
    except subprocess.TimeoutExpired:
        hub.kill()
    shutil.rmtree(folder, ignore_errors=True)
