"""The job of `bucket_sizes.py`: one rank of a DDP job that trains the same model with several bucket sizes in turns.

A plan is a dict as in `_step_drills.py`; `caps` are the values of bucket_cap_mb, `rounds` how often each has its turn.
A model of its own is made for every turn, as a re-run would, and each size is profiled once, in the middle.
"""

from __future__ import annotations

import gc
import json
from pathlib import Path

import torch
import torch.distributed as dist
from _step_drills import BLOCK, WARM, Paused, Training, all_of


def experiment(plan: dict, folder: Path) -> None:
    """Seconds per step by bucket size, a median block of each round."""
    Paused.pause = plan["pause_s"]
    caps, times = plan["caps"], {str(cap): [] for cap in plan["caps"]}
    for turn in range(plan["rounds"]):
        for cap in caps if turn % 2 else reversed(caps):
            training = Training(plan, cap)
            training.steps(WARM, late=False)
            times[str(cap)].append(training.steps(BLOCK, late=False))
            if turn == plan["rounds"] // 2:
                (folder / str(cap)).mkdir(exist_ok=True)
                training.recorded(folder / str(cap))
            del training
            gc.collect()
            dist.barrier()
    if dist.get_rank() == 0:
        (folder / "times.json").write_text(json.dumps({"plan": plan, "times": times}))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    all_of(experiment)


if __name__ == "__main__":
    main()
