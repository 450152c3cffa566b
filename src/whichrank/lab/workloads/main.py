"""The job's entry point: one rank, or the parent that forks them all."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from whichrank.lab.workloads.forking import fork_ranks
from whichrank.lab.workloads.plan import FOLDER
from whichrank.lab.workloads.rank import Rank

LEFT_OUT = "WHICHRANK_DRILL_LEAVE_OUT"
"""A rank that the parent does not start."""


def main() -> None:
    folder = Path(os.environ[FOLDER])
    if "RANK" in os.environ:
        run_rank(folder)
    else:
        sys.exit(run_all(folder, int(os.environ["WORLD_SIZE"])))


def run_all(folder: Path, world: int) -> int:
    """All ranks from one parent that has imported torch, and what the workload needs of it."""
    workload_of(folder)

    def train(rank: int) -> None:
        enter_host(folder, rank)
        run_rank(folder)

    return fork_ranks([rank for rank in range(world) if str(rank) != os.environ.get(LEFT_OUT)], train)


def run_rank(folder: Path) -> None:
    torch.set_num_threads(1)
    rank = Rank(folder)
    rank.at("start")
    rank.join()
    rank.at("joined")
    workload_of(folder).train(rank)
    rank.at("teardown")
    dist.barrier()
    dist.destroy_process_group()
    rank.at("end")


def workload_of(folder: Path) -> Any:
    name = (folder / "code" / "workload").read_text(encoding="ascii")
    return import_module(f"training.{name}")


def enter_host(folder: Path, rank: int) -> None:
    """Into the network namespace of the host that the drill gave to this rank, if it made hosts."""
    place = folder / "hosts" / str(rank)
    if place.exists():
        import_module("training.host").enter(place.read_text(encoding="ascii").split())
