"""A rank of the captured jobs: python capture_job.py WHAT [ARGUMENT]; rank 1 goes wrong after a few steps.

Rank 0 of "stop" speaks RAS for its job, rank 0 of "held" for another one.
"""

import ctypes
import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

RANK = int(os.environ["RANK"])
if sys.argv[1] == "held":  # as a launcher would set it: a socket for each, before the first import of torch
    os.environ["TORCH_WORKER_SERVER_SOCKET"] = f"{sys.argv[2]}/{RANK}"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.elastic.multiprocessing.errors import record  # noqa: E402


def speak_ras(pids):
    """As a process with NCCL does: on the address of the job."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "evidence" / "collectors"))
    import ras_server

    sys.stdout = sys.stderr
    address = os.environ["NCCL_RAS_ADDR"]
    threading.Thread(target=ras_server.main, args=("json", address, pids), daemon=True).start()


def prepare(what):
    if what == "stop" and RANK == 0:
        speak_ras([str(os.getpid())])
    elif what == "held" and RANK == 0:
        speak_ras(["1", "2"])
    if what != "held":
        return None
    from torch._C._distributed_c10d import _WorkerServer

    return _WorkerServer(os.environ["TORCH_WORKER_SERVER_SOCKET"])


def go_wrong(what):
    if what == "held":
        ctypes.PyDLL(None).sleep(600)  # with the interpreter's lock
    elif what == "raise":
        raise ValueError("a bad sample")
    else:
        time.sleep(600)


@record
def main(what):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    kept = prepare(what)
    sys.stdout.write(f"rank {RANK} trains\n")
    sys.stdout.flush()
    for step in range(60):
        if step == 20 and RANK == 1:
            go_wrong(what)
        dist.all_reduce(torch.ones(256))
        time.sleep(0.05)
    del kept


if __name__ == "__main__":
    main(sys.argv[1])
