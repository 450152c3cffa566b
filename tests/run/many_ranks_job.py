"""256 ranks (argv[1]) of one Gloo job on one host, forked after torch was imported; every eighth is elsewhere.

Two of them can't be asked: rank 3 is in state D (the kernel waits for a child that never begins its program, and the
interpreter's lock is held meanwhile), rank 5 holds the interpreter's lock in C.
"""

import ctypes
import datetime as dt
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

WORLD = int(sys.argv[1])
HARD = len(sys.argv) > 2


def fetch_shard() -> None:
    time.sleep(3600)


def hold_the_lock() -> None:
    ctypes.PyDLL(None).sleep(3600)


def wait_in_the_kernel(folder: str) -> None:
    fifo = f"{folder}/nobody-writes"
    os.mkfifo(fifo)
    # posix_spawn waits, in state D, until the child has run exec; the child waits for somebody to open the pipe.
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)])


def main(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD))
    store = dist.FileStore(f"{folder}/store", WORLD)
    # All ranks in groups of eight: a full mesh of 256 would be 32,640 connections on one machine.
    dist.init_process_group("gloo", store=dist.PrefixStore(str(rank // 8), store), rank=rank % 8,
                            world_size=min(8, WORLD), timeout=dt.timedelta(hours=1))  # fmt: skip
    dist.barrier()
    Path(f"{folder}/ready.{rank}").touch()
    if rank % 8 == 7:
        fetch_shard()
    if HARD and rank == 3:
        wait_in_the_kernel(folder)
    if HARD and rank == 5:
        hold_the_lock()
    dist.all_reduce(torch.ones(8))


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    children = []
    for rank in range(WORLD):
        pid = os.fork()
        if pid == 0:
            main(rank, folder)
            os._exit(0)
        children.append(pid)
    signal.signal(signal.SIGTERM, lambda *_: [os.kill(pid, signal.SIGKILL) for pid in children] and os._exit(0))
    while len(list(Path(folder).glob("ready.*"))) < WORLD:
        time.sleep(0.2)
    print("ready", flush=True)  # noqa: T201
    while True:
        time.sleep(60)
