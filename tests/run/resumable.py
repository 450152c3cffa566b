"""A rank of a job that saves and resumes: python resumable.py FOLDER HOW [--resume PATH]; prints the final weights.

HOW is "none", or what happens at step 7, as "once-raise", "always-raise", "once-kill", "once-hang", "always-kill",
"once-torn" (a half-written checkpoint is left, then it dies).
"""

import argparse
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from whichrank import checkpoint

RANK, STEPS, FAULT_STEP = int(os.environ["RANK"]), 12, 7


def fault(how, folder):
    marker = folder / "struck"
    if how == "none" or RANK != 1 or (how.startswith("once") and marker.exists()):
        return
    marker.touch()
    if how.endswith("torn"):
        torn = folder / "checkpoints/step-000000000006"
        torn.mkdir()
        (torn / "checkpoint.json").write_text(
            '{"whichrank_checkpoint": 1, "step": 6, "saved_ns": 9999999999999999999,'
            '"files": [{"name": "rank-00000.pt", "bytes": 5000, "sha256": ""}]}'
        )
        (torn / "rank-00000.pt").write_bytes(b"PK\3\4half")
    if how.endswith("raise"):
        raise ValueError("a bad sample")
    if how.endswith("hang"):
        time.sleep(600)
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("how")
    parser.add_argument("--resume")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    # Momentum by hand: torch's optimizers import torch._dynamo, which takes as long as torch itself.
    momentum = [torch.zeros_like(parameter) for parameter in model.parameters()]
    generator = torch.Generator().manual_seed(RANK)
    given, first = options.resume or os.environ.get("RESUME_FROM"), 0
    if given:
        state = checkpoint.opened(given).load(weights_only=True)
        model.load_state_dict(state["model"])
        momentum = state["momentum"]
        first = state["step"] + 1
        for _ in range(first):
            torch.randn(4, 8, generator=generator)
    sys.stdout.write(f"rank {RANK} begins at {first}\n")
    sys.stdout.flush()
    for step in range(first, STEPS):
        if step == FAULT_STEP:
            fault(options.how, options.folder)
        model.zero_grad()
        model(torch.randn(4, 8, generator=generator)).pow(2).mean().backward()
        for parameter, moved in zip(model.parameters(), momentum, strict=True):
            dist.all_reduce(parameter.grad)
            moved.mul_(0.9).add_(parameter.grad)
            parameter.data.sub_(moved, alpha=0.01)
        time.sleep(0.1)
        if step % 2 == 1:
            state = {"model": model.state_dict(), "momentum": momentum, "step": step}
            checkpoint.save(state, options.folder / "checkpoints", step)
            dist.barrier()
    dist.destroy_process_group()
    if RANK == 0:
        weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        sys.stdout.write(f"weights {weights.numpy().tobytes().hex()}\n")


if __name__ == "__main__":
    main()
