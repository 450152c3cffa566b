"""A rank of the tests: python rank.py WHAT. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are in the environment."""

import os
import sys
import time
from pathlib import Path


def main(what):
    if what == "absent" and os.environ["RANK"] == "2":
        return
    import whichrank

    if what == "record":
        whichrank.configure("debug", out=os.environ["OUT"])
    import torch
    import torch.distributed as dist

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    groups = {"pair": (list(range(min(2, world))), 7.0)}
    timeout = 4 if what in {"absent", "differ"} else 60
    with whichrank.process_group("gloo", timeout=timeout, groups=groups) as made:
        x = torch.ones(4)
        for _ in range(3):
            dist.all_reduce(x)
        if rank < 2:
            dist.all_reduce(x, group=made["pair"])
        if what == "fail" and rank == 1:
            raise ValueError("on purpose")
        if what == "fail":
            time.sleep(0.5)
        if what == "record":
            dump = torch._C._distributed_c10d._dump_fr_trace()
            (Path(os.environ["OUT"]) / f"dump_{rank}").write_bytes(dump)
        sys.stdout.write(f"value {x[0].item():.0f} of {made.world_size}\n")
    assert not dist.is_initialized()
    if what == "fail":
        return
    with whichrank.process_group("gloo", timeout=60):
        dist.barrier()
    sys.stdout.write(f"done {world}\n")


main(sys.argv[1])
