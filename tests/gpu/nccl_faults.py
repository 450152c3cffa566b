"""One rank of a real NCCL job with a known fault; several ranks share one GPU by NCCL_HOSTID.

torchrun --nproc_per_node=N nccl_faults.py FAULT OUT CULPRIT
"""

import datetime
import os
import signal
import sys
import time

fault, out, culprit = sys.argv[1], sys.argv[2], int(sys.argv[3])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
os.environ["NCCL_HOSTID"] = f"node{rank}"
import torch
import torch.distributed as dist
from torch import nn

odd = rank == culprit
STEPS, AT = 12, 7
device = torch.device("cuda:0")
torch.cuda.set_device(0)


def save_checkpoint(step):
    if fault == "checkpoint" and odd and step == AT:
        time.sleep(600)


def evaluate(step):
    if fault == "evaluation" and odd and step == AT:
        time.sleep(600)


def read_shard(step):
    if fault == "data" and odd and step == AT:
        time.sleep(600)
    return torch.randn(16, 256, device=device)


def tensor_parallel(tp):
    dist.all_reduce(torch.ones(300, device=device), group=tp)


def pipeline_exchange(step, peer):
    """Even ranks send, odd ranks receive, then the other way round."""
    buffer = torch.ones(64, device=device)
    if fault == "p2p_cycle" and step == AT and rank in (culprit, culprit ^ 1):
        dist.recv(buffer, peer)
        dist.send(buffer, peer)
        return
    if rank % 2 == 0:
        if not (fault == "p2p_orphan" and odd and step == AT):
            dist.send(buffer, peer)
        dist.recv(buffer, peer)
    else:
        dist.recv(buffer, peer)
        dist.send(buffer, peer)


def faulty(step, tp):
    a, b = torch.ones(4096, device=device), torch.ones(128, device=device)
    if fault == "rank0_only" and odd:
        dist.all_reduce(a)
    if fault == "extra_tp" and odd:
        dist.all_gather_into_tensor(
            torch.ones(20 * dist.get_world_size(tp), device=device), torch.ones(20, device=device), group=tp
        )
    if fault == "cross":
        if odd:
            dist.all_reduce(b, group=tp)
            dist.all_reduce(a)
        else:
            dist.all_reduce(a)
            dist.all_reduce(b, group=tp)
    if fault == "size":
        dist.all_reduce(torch.ones(512 if odd else 2048, device=device))
    if fault == "dtype":
        dist.all_reduce(torch.ones(512, device=device, dtype=torch.int32 if odd else torch.float32))
    if fault == "root":
        dist.broadcast(a, 1 if odd else 0)
    if fault == "reduce_op":
        dist.all_reduce(a, op=dist.ReduceOp.MAX if odd else dist.ReduceOp.SUM)
    if fault == "kernel" and odd:
        torch.cuda._sleep(400_000_000_000)
    if fault == "sigstop" and odd:
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault == "segv" and odd:
        os.kill(os.getpid(), signal.SIGSEGV)
    if fault == "assert" and odd:
        torch.zeros(4, device=device)[torch.tensor([9], device=device)].sum().item()
    if fault == "exception" and odd:
        raise ValueError("bad sample in shard 17")


def main():
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=20))
    half = world // 2
    groups = [
        dist.new_group(list(range(i * half, (i + 1) * half)), group_desc="tp", timeout=datetime.timedelta(seconds=20))
        for i in range(2)
    ]
    tp = groups[rank // half]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)).to(device)
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(STEPS - 4 if fault == "uneven" and odd else STEPS * (4 if fault == "straggler" else 1)):
        if fault == "straggler" and odd:
            time.sleep(0.15)
        x = read_shard(step)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if "p2p" in fault:
            pipeline_exchange(step, rank ^ 1)
        if not (fault == "skip_tp" and odd and step == AT):
            tensor_parallel(tp)
        if step == AT:
            faulty(step, tp)
        save_checkpoint(step)
        evaluate(step)
        if fault == "lock" and odd and step == AT:
            import threading

            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        torch.cuda.synchronize()
        print(f"rank {rank} step {step} loss {loss.item():.6f}", flush=True)
    if fault == "teardown" and odd:
        dist.destroy_process_group()
        time.sleep(600)
    dist.barrier()
    torch.cuda.synchronize()
    from torch._C import _distributed_c10d as c10d

    with open(f"{out}/fr_{rank}", "wb") as stream:
        stream.write(c10d._dump_nccl_trace())
    dist.destroy_process_group()


main()
