"""mp.spawn launcher: the settings are in place before the children start."""
import os
import subprocess
import sys

import torch.multiprocessing as mp


def worker(rank, world):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    os.environ["NCCL_DEBUG_FILE"] = f"/tmp/nccl.{rank}.%p"
    import torch.distributed as dist
    dist.init_process_group("nccl")
    from app import train
    train()
    dist.destroy_process_group()


def main():
    env = dict(os.environ, NCCL_SOCKET_IFNAME="eth0", NCCL_DEBUG="INFO")
    env.pop("NCCL_TIMEOUT", None)
    subprocess.run([sys.executable, "-m", "app.warm_cache"], env=env, check=True)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29555")
    mp.spawn(worker, args=(8,), nprocs=8)


if __name__ == "__main__":
    main()
