"""The ranks meet in a file that an earlier run has left."""

import subprocess
import sys

CAUSE = "stale-lock-or-store"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"
BACKENDS = ("gloo",)
# A run that joined and was killed: nobody took its file away.
EARLIER_RUN = """
import os, signal, sys
import torch.distributed as dist
path, world = sys.argv[1], int(sys.argv[2])
children = []
for rank in range(world):
    child = os.fork()
    if child == 0:
        dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world)
        dist.barrier()
        os.kill(os.getpid(), signal.SIGKILL)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
"""


def launch(setup):
    path = setup.folder / "rendezvous"
    command = [sys.executable, "-c", EARLIER_RUN, str(path), str(setup.plan.world)]
    subprocess.run(command, check=True, timeout=120, capture_output=True)


def inside(rank, point, value):
    if point != "join":
        return None
    rank.strike()
    dist, path = rank.dist, rank.folder / "rendezvous"
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank.rank, world_size=rank.world)
    return True


def culprits(plan):
    return None
