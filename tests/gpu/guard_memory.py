"""What operations of the guard cost on a GPU: host memory at first use, as CUDA loads code lazily, and time of a call.

    python3 tests/gpu/guard_memory.py [AT_ONCE] > guard_memory.json

Each in a process of its own, after 20 steps of a small model with AdamW. `first_mb` and `second_mb` are what the
process holds more after one call and after two; `call_us` is the time of the job's thread, `device_us` of the GPU.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from concurrent import futures

OPERATIONS = """nothing|0
weights|table()
cat_mul_sum_of_integers|integers()
foreach_norm|torch._foreach_norm(many, 2, torch.float32)
foreach_norm_largest|torch._foreach_norm(many, float("inf"), torch.float32)
foreach_max|torch._foreach_max(many)
dots|torch.stack([torch.dot(g, g) for g in many])
dots_after_integers|(integers(), torch.stack([torch.dot(g, g) for g in many]))
products_after_integers|(integers(), torch.stack([torch.mul(g, g).sum() for g in many[:20]]))
rows_after_integers|(integers(), rows())
largest|torch.stack([torch.linalg.vector_norm(g, float("inf")) for g in many])
smallest_and_largest|[torch.aminmax(g) for g in many]
not_finite|torch.stack([torch.isfinite(g).sum() for g in many])
cumsum|integer.cumsum(0)
bf16_dots|torch.stack([torch.dot(g, g) for g in narrow])
bf16_sum|narrow[0].float().sum()
pinned|torch.empty(100, dtype=torch.int64, pin_memory=True).copy_(integer[:100], non_blocking=True)
random_state|torch.cuda.get_rng_state()"""


def resident():
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * 4096


def one(name, port):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.cuda.set_device(0)
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("nccl")
    layers = [layer for _ in range(24) for layer in (nn.Linear(1440, 1440), nn.GELU(), nn.LayerNorm(1440))]
    net = DistributedDataParallel(nn.Sequential(*layers).cuda())
    optimizer, x = torch.optim.AdamW(net.parameters(), lr=1e-4), torch.randn(512, 1440, device="cuda")
    for _ in range(20):
        optimizer.zero_grad()
        net(x).pow(2).mean().backward()
        optimizer.step()
    many = [p.grad.detach().view(-1) for p in net.parameters()]
    narrow = [torch.empty_like(g, dtype=torch.bfloat16) for g in many]
    integer = many[0][: 1 << 18].view(torch.int64)
    weights = torch.empty_like(integer)
    short = [g for g in many if g.numel() < 1 << 14]
    zeros = torch.zeros(1024, device="cuda")

    def table():
        index = torch.arange(1, 131073, dtype=torch.int64)
        mixed = (index * 6364136223846793005) ^ (index << 29)
        return (mixed | 1).cuda()

    def integers():
        return torch.cat([integer, integer]).view(2, -1).mul_(weights).sum(1)

    def rows():
        padded = [t for g in short for t in (g, zeros[: -g.numel() % 1024])]
        line = torch.cat(padded)
        return line.mul_(line).view(-1, 1024).sum(1)

    code = compile(dict(line.split("|") for line in OPERATIONS.splitlines())[name], name, "eval")
    scope = {**globals(), **locals()}
    torch.cuda.synchronize()
    resident()
    before = resident()
    kept = eval(code, scope)
    torch.cuda.synchronize()
    first = resident() - before
    kept = (kept, eval(code, scope))
    torch.cuda.synchronize()
    second = resident() - before
    starts, ends = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(400_000_000)  # the device is behind, as in a job that it holds up
    starts.record()
    began = time.thread_time()
    for _ in range(4):
        kept = eval(code, scope)
    spent = time.thread_time() - began
    ends.record()
    torch.cuda.synchronize()
    del kept
    print(json.dumps({"what": name, "first_mb": round(first / 1e6, 2), "second_mb": round(second / 1e6, 2),
                      "call_us": round(spent / 4 * 1e6), "device_us": round(starts.elapsed_time(ends) / 4 * 1e3)}),
          flush=True)  # fmt: skip
    os._exit(0)


def main():
    names = [line.split("|")[0] for line in OPERATIONS.splitlines()]

    def started(index):
        command = [sys.executable, __file__, "one", names[index], str(24000 + index)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=150)
        return json.loads(done.stdout) if done.stdout else {"what": names[index], "error": done.stderr[-400:]}

    with futures.ThreadPoolExecutor(int(sys.argv[1]) if len(sys.argv) > 1 else 6) as pool:
        found = list(pool.map(started, range(len(names))))
    print("[\n" + ",\n".join(json.dumps(each) for each in found) + "\n]")


if __name__ == "__main__":
    one(*sys.argv[2:4]) if sys.argv[1:2] == ["one"] else main()
