"""Everything that is done once before the ranks are forked: torch, its stand-ins, and what the script imports."""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch
import torch.distributed.checkpoint
import torch.multiprocessing.spawn
import torch.optim
import torch.utils.data

from whichrank.worker.rehearsal import children, clock, cuda, distributed, script, training


def version() -> str:
    return str(torch.__version__)


def everything(setup: dict[str, Any]) -> list[str]:
    """Install the stand-ins, then import what the script will import; returns what could not be imported."""
    torch.set_num_threads(1)
    distributed.install()
    cuda.install(setup["world"])
    training.install(setup["workers"])
    children.install()
    warm_up()
    missing = []
    for name in setup["preload"]:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - the script will meet the same, and tell
            missing.append(f"{name}: {type(error).__name__}: {error}"[:300])
    clock.install()
    return missing


def warm_up() -> None:
    """DistributedDataParallel and the optimizers import torch's compiler: once here, not in every rank."""
    import torch._dynamo
    from torch._dynamo import trace_rules

    trace_rules.clear_lru_cache = lambda: None
    torch._dynamo.config.disable = True
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)


def for_rank(plan: dict[str, Any], rank: int) -> None:
    """What differs between the ranks and between explorations."""
    explore = plan.get("explore") or {}
    guilty = explore.get("rank") == rank
    training.Plan.kind, training.Plan.at = explore.get("kind", ""), explore.get("at", 0)
    training.Plan.guilty = guilty
    training.shift_seeds(explore.get("seed", 0))
    if explore.get("kind") == "exception":
        script.Plan.place, script.Plan.guilty = (explore["file"], explore["line"]), guilty
    os.environ.setdefault("OMP_NUM_THREADS", "1")
