"""The job's entry point: one rank, or the parent that forks them all."""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

import torch
import torch.distributed as dist

from whichrank.lab.workloads.plan import FOLDER
from whichrank.lab.workloads.rank import Rank

GRACE_S = 5.0
LEFT_OUT = "WHICHRANK_DRILL_LEAVE_OUT"
"""A rank that the parent does not start."""
POLL_S = 0.1
"""How often torchrun looks whether its ranks live: the others have this long when one has ended."""


def main() -> None:
    folder = Path(os.environ[FOLDER])
    if "RANK" in os.environ:
        run_rank(folder)
    else:
        sys.exit(fork_ranks(folder, int(os.environ["WORLD_SIZE"])))


def run_rank(folder: Path) -> None:
    torch.set_num_threads(1)
    rank = Rank(folder)
    rank.at("start")
    rank.join()
    rank.at("joined")
    workload = (folder / "code" / "workload").read_text(encoding="ascii")
    import_module(f"training.{workload}").train(rank)
    rank.at("teardown")
    dist.barrier()
    dist.destroy_process_group()
    rank.at("end")


def fork_ranks(folder: Path, world: int) -> int:
    """All ranks from one parent that has imported torch; when one fails the others are ended, as launchers do."""
    children: dict[int, int] = {}
    left_out = os.environ.get(LEFT_OUT)
    for rank in range(world):
        if str(rank) == left_out:
            continue
        # Set before the fork: the child is known by its number from its first moment.
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        child = os.fork()
        if child == 0:
            run_forked(folder, rank)
        children[child] = rank
    code = 0
    while children:
        child, status = os.wait()
        rank = children.pop(child)
        if status and not code:
            code = os.waitstatus_to_exitcode(status)
            sys.stderr.write(f"rank {rank} (pid {child}) ended with {code}\n")
            time.sleep(POLL_S)
            end(children)
    return 1 if code < 0 else code


def run_forked(folder: Path, rank: int) -> None:
    """The life of a forked rank, with the ends that an interpreter would have had; never returns."""
    code = 1
    try:
        enter_host(folder, rank)
        run_rank(folder)
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException as error:  # noqa: BLE001 - what an interpreter does at its end
        sys.last_value = error
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        import atexit

        atexit._run_exitfuncs()  # noqa: SLF001 - a forked child that leaves by _exit has to run them itself
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def enter_host(folder: Path, rank: int) -> None:
    """Into the network namespace of the host that the drill gave to this rank, if it made hosts."""
    place = folder / "hosts" / str(rank)
    if place.exists():
        import_module("training.host").enter(place.read_text(encoding="ascii").split())


def end(children: dict[int, int]) -> None:
    for child in children:
        os.kill(child, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    waiting = dict(children)
    while waiting and time.monotonic() < deadline:
        for child in list(waiting):
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                waiting.pop(child)
        time.sleep(0.05)
    for child in waiting:
        os.kill(child, signal.SIGKILL)
