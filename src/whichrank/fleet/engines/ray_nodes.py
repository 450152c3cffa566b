"""The nodes of a running Ray cluster: the command runs there as a child of a small actor, and its streams come here.

Ray's own Python starts that actor; `python -m whichrank.fleet.engines.ray_nodes NODE ADDRESS -- COMMAND…` is the relay
on this side. Needs `whichrank[ray]`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from whichrank.fleet.engines import Engine
from whichrank.model.errors import UsageError

_PIECE = 1 << 16


def engine(address: str = "auto") -> Engine:
    ray = _ray(address)
    nodes = {str(node["NodeManagerHostname"]): node for node in ray.nodes() if node.get("Alive")}
    ids = {name: str(node["NodeID"]) for name, node in nodes.items()}
    addresses = {name: str(node["NodeManagerAddress"]) for name, node in nodes.items()}
    ray.shutdown()

    def wrap(host: str, command: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "whichrank.fleet.engines.ray_nodes", ids[host], address, "--", *command]

    return Engine("ray", tuple(nodes), wrap, addresses=addresses)


def _ray(address: str) -> Any:
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise UsageError("Ray is not installed here", "pip install 'whichrank[ray]'") from error
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error", configure_logging=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UsageError(f"no Ray cluster at {address}: {error}", "ray status shows whether one runs.") from error
    return ray


class Remote:
    """What runs on the node: a child, and its streams in pieces."""

    def __init__(self, command: list[str]) -> None:
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603

    def write(self, data: bytes) -> None:
        if self.child.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                if data:
                    self.child.stdin.write(data)
                    self.child.stdin.flush()
                else:
                    self.child.stdin.close()

    def read(self) -> bytes:
        """Waits for the next piece; empty at the end."""
        return os.read(self.child.stdout.fileno(), _PIECE) if self.child.stdout is not None else b""

    def code(self) -> int:
        return self.child.wait()


def main() -> int:
    node, address, command = sys.argv[1], sys.argv[2], sys.argv[4:]
    ray = _ray(address)
    strategy = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy(node, soft=False)
    actor = ray.remote(Remote).options(num_cpus=0, max_concurrency=3, scheduling_strategy=strategy).remote(command)

    def forward() -> None:
        while True:
            data = os.read(0, _PIECE)
            ray.get(actor.write.remote(data))
            if not data:
                return

    threading.Thread(target=forward, daemon=True).start()
    while data := ray.get(actor.read.remote()):
        os.write(1, data)
    return int(ray.get(actor.code.remote()))


if __name__ == "__main__":
    os._exit(main())
