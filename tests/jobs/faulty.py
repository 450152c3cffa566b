"""Real Gloo jobs with a known fault each; every rank writes its flight-recorder dump while it hangs.

python faulty.py SECONDS FAULT:OUT:WORLD:CULPRIT …

Torch is imported once; the ranks are forked from there. Jobs run one after the other.
"""

import os
import signal
import socket
import sys
import threading
import time
from datetime import timedelta

os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
import torch
import torch.distributed as dist

FAULT_STEP, STEPS = 6, 10
PATIENCE_S = 60.0
seconds, fault, out, world, culprit, rank, odd = 2.0, "", "", 0, 0, 0, False


def dump():
    from torch._C import _distributed_c10d as c10d

    part = f"{out}/.part{rank}"
    with open(part, "wb") as stream:
        stream.write(c10d._dump_fr_trace())
    os.rename(part, f"{out}/trace_rank_{rank}")


def leave():
    """Exit together: a rank that leaves early would make the others fail before their dump is written."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not all(os.path.exists(f"{out}/trace_rank_{r}") for r in range(world)):
        time.sleep(0.05)
    os._exit(0)


def dump_later():
    time.sleep(seconds)
    dump()
    leave()


def grads(step):
    for size in (4096, 1024, 256):
        dist.all_reduce(torch.ones(size))


def tensor_parallel(tp):
    out_list = [torch.zeros(64) for _ in range(dist.get_world_size(tp))]
    dist.all_gather(out_list, torch.ones(64), group=tp)
    dist.all_reduce(torch.ones(64), group=tp)


def evaluate(step):
    loss = torch.ones(1)
    if fault == "skip_new" and odd:
        return loss
    dist.all_reduce(loss)
    return loss


def faulty_step(step, tp):
    a, b = torch.ones(2048), torch.ones(128)
    if fault == "stuck" and odd:
        time.sleep(600)
    if fault == "swap" and odd:
        dist.broadcast(b, 0)
        dist.all_reduce(a)
    elif fault == "swap":
        dist.all_reduce(a)
        dist.broadcast(b, 0)
    if fault == "size":
        dist.all_reduce(torch.ones(512 if odd else 2048))
    if fault == "dtype":
        dist.all_reduce(torch.ones(512, dtype=torch.float64 if odd else torch.int64))
    if fault == "alone" and odd:
        dist.barrier()
    if fault == "cross":
        if odd:
            dist.all_reduce(torch.ones(33), group=tp)
            dist.all_reduce(torch.ones(55))
        else:
            dist.all_reduce(torch.ones(55))
            dist.all_reduce(torch.ones(33), group=tp)
    if fault == "p2p_cycle" and rank in (0, 1):
        dist.recv(torch.zeros(4), src=1 - rank)
    if fault == "skip_new":
        evaluate(step)


def train():
    half = world // 2
    groups = [dist.new_group(list(range(i * half, (i + 1) * half)), group_desc="tp") for i in range(2)]
    tp = groups[min(rank // half, 1)] if world >= 4 else None
    steps = STEPS - 3 if fault == "uneven" and odd else STEPS
    for step in range(steps):
        if fault == "straggler" and odd:
            time.sleep(0.05)
        if step == FAULT_STEP:
            faulty_step(step, tp)
        if tp is not None:
            tensor_parallel(tp)
        if fault == "skip_known" and odd and step == FAULT_STEP:
            continue
        grads(step)
    dist.barrier()


def be_rank():
    """All that one rank does; never returns."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    threading.Thread(target=dump_later, daemon=True).start()
    try:
        train()
    except RuntimeError:  # Gloo notices some mismatches itself: the recorder still has what was issued
        time.sleep(600)
    if fault in ("healthy", "straggler"):
        dump()
        leave()
    time.sleep(600)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_one():
    """Fork the ranks of one job and wait until all of them have left."""
    global rank, odd
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(world))
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            odd = rank == culprit
            os.environ["RANK"] = str(rank)
            be_rank()
        children.append(child)
    deadline = time.monotonic() + PATIENCE_S
    while children and time.monotonic() < deadline:
        children = [child for child in children if os.waitpid(child, os.WNOHANG)[0] == 0]
        time.sleep(0.05)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def warm_up():
    """The first look-up of a traceback costs seconds of CPU: pay it once, before the ranks are forked."""
    from torch._C._profiler import gather_traceback, symbolize_tracebacks

    symbolize_tracebacks([gather_traceback(python=True, script=False, cpp=False)])


if __name__ == "__main__":
    torch.set_num_threads(1)
    warm_up()
    seconds = float(sys.argv[1])
    for job in sys.argv[2:]:
        fault, out, *numbers = job.split(":")
        world, culprit = map(int, numbers)
        os.makedirs(out, exist_ok=True)
        run_one()
