"""N copies of one command, started by anything that sets RANK, WORLD_SIZE and MASTER_ADDR: rank 0 leads the others.

The others connect to rank 0 and serve it over that connection, one for each host; whoever shares a host with another
copy only waits for the end. Copies on one host share its name and its network; hosts of the same name are told apart
by their addresses.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from whichrank.fleet.host_helpers import Channel, HostHelpers, ProcessChannel
from whichrank.model.errors import UsageError

NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR")
_MEET_S = 120.0


class SocketChannel(Struct):
    """The connection of one copy."""

    connection: socket.socket
    reads: int
    writes: int

    def reason(self) -> str:
        return "its copy has gone"

    def close(self) -> None:
        self.connection.close()


def told(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is one of several copies."""
    return (
        all(name in environ for name in NAMES)
        and environ.get("WORLD_SIZE", "1").isdigit()
        and int(environ["WORLD_SIZE"]) > 1
    )


class _Copy(Struct, frozen=True):
    """Where a copy runs."""

    host: str
    network: str
    """Equal for copies that share a machine and its network."""
    address: str
    channel: Channel


def lead(command: list[str], port: int, limit_s: float = _MEET_S) -> tuple[HostHelpers, list[socket.socket]]:
    """For rank 0: wait for all others. Gives the helpers, one per host, and the connections of those that wait."""
    world = int(os.environ["WORLD_SIZE"])
    listener = socket.create_server(("", port), backlog=world, reuse_port=False)
    copies = [_Copy(*_whereabouts(), os.environ["MASTER_ADDR"], ProcessChannel.start(command))]
    idle: list[socket.socket] = []
    deadline = time.monotonic() + limit_s
    for _ in range(world - 1):
        listener.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            connection, (address, *_) = listener.accept()
        except TimeoutError:
            break
        host, _, network = connection.makefile("rb").readline(512).decode("utf-8", "replace").strip().partition(" ")
        if any((copy.host, copy.network) == (host, network) for copy in copies):
            idle.append(connection)
            continue
        connection.setblocking(False)
        channel = SocketChannel(connection, connection.fileno(), os.dup(connection.fileno()))
        copies.append(_Copy(host, network, str(address), channel))
    listener.close()
    return HostHelpers(_named(copies)), idle


def _named(copies: Sequence[_Copy]) -> dict[str, Channel]:
    """By host name; by address where hosts share a name."""
    counts = Counter(copy.host for copy in copies)
    return {copy.host if counts[copy.host] == 1 else copy.address: copy.channel for copy in copies}


def _whereabouts() -> tuple[str, str]:
    """The name of this host, and what identifies its network."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return socket.gethostname(), f"{boot}/{Path('/proc/self/ns/net').stat().st_ino}"
    except OSError:
        return socket.gethostname(), ""


def follow(serve: Callable[[socket.socket], None], port: int, limit_s: float = _MEET_S) -> int:
    """For all others: serve rank 0 until it has the answer; its exit code is ours."""
    address = os.environ["MASTER_ADDR"]
    deadline = time.monotonic() + limit_s
    while True:
        try:
            connection = socket.create_connection((address, port), timeout=5)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise UsageError(
                    f"rank 0 does not answer at {address}:{port}: {error}", "Is MASTER_ADDR right?"
                ) from error
            time.sleep(0.2)
    connection.settimeout(None)
    connection.sendall(" ".join(_whereabouts()).encode() + b"\n")
    serve(connection)
    return 0


def say_end(connections: list[socket.socket]) -> None:
    for connection in connections:
        try:
            connection.sendall(json.dumps({"do": "end"}).encode() + b"\n")
        finally:
            connection.close()
