"""A healthy job with all the pauses that healthy jobs have: python soak_job.py SECONDS FOLDER, under torchrun.

Nothing in here is a fault: every pause ends by itself, and some are longer than any before them.
"""

from __future__ import annotations

import gc
import http.client
import http.server
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
FOLDER = Path(sys.argv[2])
_dice = random.Random(7)  # noqa: S311 - the same on all ranks


def step(work_s: float = 0.05) -> None:
    x = torch.ones(64, 64)
    for size in (4096, 1024):
        dist.all_reduce(torch.ones(size))
    (x @ x).sum().item()
    dist.broadcast(torch.ones(16), 0)
    time.sleep(work_s)


def train(seconds: float) -> None:
    for _ in range(int(seconds / 0.06)):
        step()


def compute(seconds: float) -> None:
    x, until = torch.ones(128, 128), time.monotonic() + seconds
    while time.monotonic() < until:
        x = (x @ x).clamp(0, 1)
        time.sleep(0.002)


def evaluate_everywhere(seconds: float) -> None:
    compute(seconds / 2)
    dist.all_reduce(torch.ones(1))


def score_on_rank_zero(seconds: float) -> None:
    """Others are in the next collective already."""
    if RANK == 0:
        compute(seconds)


def write_weights(seconds: float) -> None:
    """Rank 0 writes, at the pace of a slow file system."""
    if RANK == 0:
        until, weights = time.monotonic() + seconds, torch.ones(256, 1024)
        while time.monotonic() < until:
            torch.save({"weights": weights}, FOLDER / "weights.pt")
            time.sleep(0.1)


def save_checkpoint(seconds: float) -> None:
    """Rank 0 waits until a store far away says that it has everything."""
    if RANK == 0:
        time.sleep(seconds)


class _Store(http.server.BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        time.sleep(float(self.headers["X-Seconds"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Nothing."""


def push(seconds: float) -> None:
    """The same with a real request, from a function whose name says nothing."""
    if RANK != 0:
        return
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = http.client.HTTPConnection("127.0.0.1", server.server_address[1])
    client.request("PUT", "/weights", b"x" * 65_536, {"X-Seconds": str(seconds)})
    client.getresponse().read()
    server.shutdown()
    server.server_close()


def recompile(seconds: float) -> None:
    """A new shape on one rank: its compiler works for a while."""
    shape = _dice.randrange(2, 100)
    if RANK != 2:
        return

    def backend(graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Callable[..., object]:
        compute(seconds)
        return graph.forward

    torch.compiler.reset()
    torch.compile(lambda x: (x * 2 + 1).sum(), backend=backend)(torch.ones(shape))


def collect_garbage(seconds: float) -> None:
    """Nobody else runs in that interpreter meanwhile."""
    if RANK == 1:
        gc.collect()
        began = time.monotonic()
        sum(range(4_000_000))
        sum(range(int(4_000_000 * seconds / (time.monotonic() - began))))


def freeze(seconds: float) -> None:
    """Stopped from outside and let go on, as a debugger or a snapshot of a container does."""
    if RANK == 3:
        pid = os.getpid()
        subprocess.Popen(["/bin/sh", "-c", f"kill -STOP {pid}; sleep {seconds}; kill -CONT {pid}"]).wait()


def wait_for_data(seconds: float) -> None:
    if RANK == 3:
        time.sleep(seconds)


def slow_steps(seconds: float) -> None:
    for _ in range(int(seconds)):
        step(0.6 if RANK == 1 else 0.05)
        time.sleep(0.4)


def change_rhythm(seconds: float) -> None:
    until = time.monotonic() + seconds
    while True:
        step(_dice.random() * 2)
        more = torch.tensor([float(time.monotonic() < until)])
        dist.broadcast(more, 0)
        if not more.item():
            return


ROUND: tuple[tuple[Callable[[float], None], float], ...] = (
    (evaluate_everywhere, 14),
    (score_on_rank_zero, 15),
    (save_checkpoint, 20),
    (collect_garbage, 6),
    (write_weights, 16),
    (recompile, 10),
    (push, 22),
    (freeze, 3),
    (slow_steps, 12),
    (wait_for_data, 9),
    (change_rhythm, 10),
)
"""A pause, and its seconds in the first round; later ones are longer, to a limit."""
LIMITS = {freeze: 3.0, collect_garbage: 9.0, wait_for_data: 11.0}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    end, factor = time.monotonic() + float(sys.argv[1]), 1.0
    for number in range(8):
        step(1.5 / (number + 1))
    while True:
        for pause, seconds in ROUND:
            train(2 + 4 * _dice.random())
            pause(min(seconds * factor, LIMITS.get(pause, 25.0)))
        factor *= 1.2
        more = torch.tensor([float(time.monotonic() < end)])
        dist.broadcast(more, 0)
        if not more.item():
            break
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
