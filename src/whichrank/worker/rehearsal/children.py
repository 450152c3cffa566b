"""Processes that the script starts itself: ranks of `mp.spawn` are forked, and find the referee."""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch.multiprocessing as mp

from whichrank.worker.rehearsal import client
from whichrank.worker.rehearsal.rank import live

STACKS = Path("/tmp")  # noqa: S108 - replaced before use


class Plan:
    launched = True
    """Whether the ranks were started as torchrun starts them."""
    stacks = STACKS


class Spawned:
    """What `mp.spawn(…, join=False)` gives back."""

    def __init__(self, pids: list[int]) -> None:
        self.left = set(pids)
        self.processes: list[Any] = []

    def pids(self) -> list[int]:
        return sorted(self.left)

    def join(self, timeout: float | None = None) -> bool:
        while self.left:
            pid, status = os.waitpid(-1, 0)
            if pid in self.left:
                self.left.discard(pid)
                if status:
                    raise mp.ProcessRaisedException("a rank failed", 0, pid)
        return True


def start_processes(
    fn: Any, args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, *_: Any, **__: Any
) -> Spawned | None:
    """Called as torch.multiprocessing.start_processes and spawn: the children are forked."""
    if Plan.launched and client.rank is not None:
        # The script starts its ranks itself: it is to be run once, not once for each rank.
        client.note("spawn", processes=nprocs)
        os._exit(0)
    sys.stdout.flush()
    sys.stderr.flush()
    pids = []
    for index in range(nprocs):
        pid = os.fork()
        if pid == 0:
            client.connect()
            live(lambda number=index: fn(number, *args), Plan.stacks)
        pids.append(pid)
    started = Spawned(pids)
    if join:
        started.join()
        return None
    return started


class Process(multiprocessing.get_context("fork").Process):  # type: ignore[misc,name-defined]
    """A process whose failure the referee hears of, if it plays a rank."""

    def run(self) -> None:
        try:
            super().run()
        except BaseException as failure:
            from whichrank.worker.rehearsal.rank import told

            if client.current() is not None:
                traceback.print_exc()
                client.note("end", code=1, error=told(failure))
            raise
        if client.current() is not None:
            client.note("end", code=0)


def install() -> None:
    """Fork is the only way to start a process: nothing that was prepared would be there after a spawn."""
    for module in (mp, sys.modules["torch.multiprocessing.spawn"]):
        module.start_processes = start_processes
        module.spawn = start_processes
    fork = multiprocessing.get_context("fork")
    for module in (multiprocessing, mp):
        module.set_start_method = lambda *_, **__: None
        module.get_context = lambda *_: fork
        module.Process = Process
