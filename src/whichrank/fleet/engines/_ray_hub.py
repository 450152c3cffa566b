"""One driver of a Ray cluster for all nodes: `python -m whichrank.fleet.engines._ray_hub ADDRESS SOCKET`.

It prints the nodes as one line of JSON, then runs a command on a node for everybody who connects to the socket: as a
child of a small actor there, whose streams come back in pieces. It ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from whichrank.fleet.engines._ray_relay import PIECE, frame
from whichrank.model.host_lists import by_numbers

_HEAD = 1 << 20


class Remote:
    """What runs on the node: a child, and its streams in pieces. Ray carries this class there."""

    def __init__(self, command: list[str]) -> None:
        # A node may have its Python elsewhere; Ray's own is good enough.
        program = command[0] if shutil.which(command[0]) else sys.executable
        self.child = subprocess.Popen(  # noqa: S603 - what the user asked for, no shell
            [program, *command[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip

    def write(self, data: bytes) -> None:
        if self.child.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                if data:
                    self.child.stdin.write(data)
                    self.child.stdin.flush()
                else:
                    self.child.stdin.close()

    def read(self, kind: str) -> bytes:
        """Waits for the next piece; empty at the end."""
        stream = self.child.stdout if kind == "o" else self.child.stderr
        return os.read(stream.fileno(), 1 << 18) if stream is not None else b""

    def code(self) -> int:
        return self.child.wait()

    def end(self) -> None:
        """Whoever asked has gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, signal.SIGKILL)


def connect(address: str) -> Any:
    """The module, connected; raises what Ray raises."""
    ray: Any = import_module("ray")
    ray.init(address=address, log_to_driver=False, logging_level="error", configure_logging=False)
    return ray


def nodes(ray: Any) -> dict[str, dict[str, str]]:
    """Name -> id and address of the nodes that live, by name; of several on one machine the first. Ray has no order."""
    machines: dict[tuple[str, str], str] = {}
    for node in ray.nodes():
        if node.get("Alive"):
            machines.setdefault(
                (str(node["NodeManagerHostname"]), str(node["NodeManagerAddress"])), str(node["NodeID"])
            )
    names = [name for name, _ in machines]
    return {
        name if names.count(name) == 1 else f"{name}-{address}": {"id": node, "address": address}
        for (name, address), node in sorted(machines.items(), key=lambda machine: [*map(by_numbers, machine[0])])
    }


def _serve(ray: Any, peer: socket.socket) -> None:
    """One command, from its words to its exit code."""
    strategies: Any = import_module("ray.util.scheduling_strategies")
    stream = peer.makefile("rb")
    head = stream.read(5)
    node, *command = json.loads(stream.read(min(struct.unpack(">I", head[1:])[0], _HEAD)))
    lock = threading.Lock()

    def send(kind: bytes, data: bytes) -> None:
        with lock:
            peer.sendall(frame(kind, data))

    actor = None
    try:
        strategy = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        options = {"num_cpus": 0, "max_concurrency": 5, "scheduling_strategy": strategy}
        actor = ray.remote(Remote).options(**options).remote(command)
        threading.Thread(target=_forward, args=(ray, actor, stream), daemon=True).start()
        errors = threading.Thread(target=_pump, args=(ray, actor, "e", send), daemon=True)
        errors.start()
        _pump(ray, actor, "o", send)
        errors.join(5)
        send(b"x", str(ray.get(actor.code.remote())).encode())
    except OSError:
        pass  # the other side has gone
    except Exception as error:  # noqa: BLE001 - Ray's own errors are known only where it is installed
        with contextlib.suppress(OSError):
            send(b"e", f"Ray: {str(error).strip().splitlines()[-1][:300]}\n".encode())
            send(b"x", b"1")
    finally:
        if actor is not None:
            actor.end.remote()
        peer.close()


def _pump(ray: Any, actor: Any, kind: str, send: Callable[[bytes, bytes], None]) -> None:
    while data := ray.get(actor.read.remote(kind)):
        send(kind.encode(), data)


def _forward(ray: Any, actor: Any, stream: Any) -> None:
    with contextlib.suppress(Exception):  # the actor has ended: the other threads tell
        while head := stream.read(5):
            ray.get(actor.write.remote(stream.read(min(struct.unpack(">I", head[1:])[0], PIECE))))
        ray.get(actor.end.remote())  # the relay is gone: so is whoever wanted the answer


def main() -> int:
    address, place = sys.argv[1:3]
    try:
        ray = connect(address)
        found = nodes(ray)
    except ImportError:
        found, error = None, "Ray is not installed here"
    except Exception as problem:  # noqa: BLE001 - see above
        found, error = None, f"no Ray cluster at {address}: {problem}"
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answers.write(json.dumps({"nodes": found} if found is not None else {"error": error[:500]}) + "\n")
    answers.flush()
    if found is None:
        return 1
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(1024)
    answers.write("ready\n")
    answers.flush()

    def accept() -> None:
        while True:
            peer, _ = listener.accept()
            threading.Thread(target=_serve, args=(ray, peer), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    while os.read(0, 1):
        pass
    ray.shutdown()
    return 0


if __name__ == "__main__":
    os._exit(main())
