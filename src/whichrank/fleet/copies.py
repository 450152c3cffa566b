"""N copies of one command, started by anything that sets RANK, WORLD_SIZE and MASTER_ADDR: rank 0 leads the others.

The others connect to rank 0 and serve it over that connection, one for each host; whoever shares a host with another
copy only waits for the end. Copies on one host share its name and its network; hosts of the same name are told apart
by their addresses.

Both sides greet each other before anything else, so that a stranger on the port is neither served nor counted. With
WHICHRANK_TOKEN in the environment of all copies, both also prove that they know it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
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
_GREET_S = 5.0
_GREETING = "whichrank copies 1"
_LONGEST_LINE = 512


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
    try:
        listener = socket.create_server(("", port), backlog=world, reuse_port=False)
    except OSError as error:
        raise UsageError(
            f"can't listen for the other copies on port {port}: {error.strerror}", "Give all copies another --port."
        ) from error
    copies = [_Copy(*_whereabouts(), os.environ["MASTER_ADDR"], ProcessChannel.start(command))]
    idle: list[socket.socket] = []
    deadline = time.monotonic() + limit_s
    while len(copies) + len(idle) < world:
        listener.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            connection, (address, *_) = listener.accept()
        except TimeoutError:
            break
        try:
            host, network = _greeted_by(connection)
        except (OSError, ValueError):  # a stranger, or a copy that has gone
            connection.close()
            if time.monotonic() > deadline:
                break
            continue
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
            connection = socket.create_connection((address, port), timeout=_GREET_S)
            try:
                _greet(connection)
                break
            except (OSError, ValueError):
                connection.close()
                raise
        except (OSError, ValueError) as error:
            if time.monotonic() > deadline:
                raise UsageError(
                    f"rank 0 does not answer at {address}:{port}: {error}", "Is MASTER_ADDR right?"
                ) from error
            time.sleep(0.2)
    connection.settimeout(None)
    serve(connection)
    return 0


def _greeted_by(connection: socket.socket) -> tuple[str, str]:
    """For rank 0: greet whoever has connected. Gives its host and what identifies its network."""
    connection.settimeout(_GREET_S)
    number = secrets.token_hex(16)
    connection.sendall(f"{_GREETING} {number}\n".encode())
    host, network, answer, theirs = _line(connection).split(" ")
    if not hmac.compare_digest(answer, _proof("copy", number)):
        raise ValueError("not a copy of this command")
    connection.sendall(f"{_proof('lead', theirs)}\n".encode())
    connection.settimeout(None)
    return host, network


def _greet(connection: socket.socket) -> None:
    """For all others: greet rank 0, and make sure that it is rank 0."""
    greeting, _, number = _line(connection).rpartition(" ")
    if greeting != _GREETING:
        raise ValueError("another program has this port")
    mine = secrets.token_hex(16)
    host, network = _whereabouts()
    connection.sendall(f"{host} {network} {_proof('copy', number)} {mine}\n".encode())
    if not hmac.compare_digest(_line(connection), _proof("lead", mine)):
        raise ValueError("it has another WHICHRANK_TOKEN")


def _proof(side: str, number: str) -> str:
    """What only a process with the same token can answer to this number."""
    key = os.environ.get("WHICHRANK_TOKEN", "").encode()
    return hmac.new(key, f"{_GREETING} {side} {number}".encode(), hashlib.sha256).hexdigest()


def _line(connection: socket.socket) -> str:
    """One short line, and nothing of what follows it."""
    data = bytearray()
    deadline = time.monotonic() + _GREET_S
    while not data.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte or len(data) > _LONGEST_LINE or time.monotonic() > deadline:
            raise ValueError("it closed the connection or sent no greeting")
        data += byte
    return data[:-1].decode("ascii")


def say_end(connections: list[socket.socket]) -> None:
    for connection in connections:
        try:
            connection.sendall(json.dumps({"do": "end"}).encode() + b"\n")
        finally:
            connection.close()
