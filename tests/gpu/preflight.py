"""On one GPU: the host checks, bench on NCCL with ranks that share it, and the memory budget against what is taken.

python tests/gpu/preflight.py > preflight.json   (about two minutes)
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

# One rank of a job whose ranks share the GPU: a host id of its own for each.
RANK = """
import json, os, sys, torch, torch.distributed as dist
os.environ["NCCL_HOSTID"] = f"host{os.environ['RANK']}"
torch.cuda.set_device(0)
torch.zeros(1, device="cuda"); torch.cuda.synchronize()
peer = lambda: torch.cuda.mem_get_info()[0]
what = json.loads(sys.argv[1])
dist.init_process_group("nccl", device_id=torch.device("cuda", 0) if what.get("eager") else None)
store = dist.distributed_c10d._get_default_store()
def meet(name):
    store.add(name, 1)
    while int(store.add(name, 0)) < dist.get_world_size(): pass
told = {"rank": dist.get_rank(), "world": dist.get_world_size()}
meet("a"); told["context_only_free"] = peer(); meet("b")
x = torch.ones(1 << 20, device="cuda")
for _ in range(3): dist.all_reduce(x)
torch.cuda.synchronize()
meet("c"); told["after_nccl_free"] = peer(); meet("d")
if what.get("params"):
    layers = what["units"]
    side = int((what["params"] / layers) ** 0.5)
    model = torch.nn.Sequential(*[torch.nn.Linear(side, side, bias=False) for _ in range(layers)]).cuda()
    told["model_bytes"] = sum(p.numel() * 4 for p in model.parameters())
    x = torch.randn(8, side, device="cuda")
    model(x).sum().backward(); model.zero_grad(set_to_none=False); torch.cuda.synchronize()
    base = torch.cuda.memory_allocated()
    if what["strategy"] == "ddp":
        ddp = torch.nn.parallel.DistributedDataParallel
        wrapped = ddp(model, device_ids=[0], gradient_as_bucket_view=what.get("view", False))
        wrapped(x).sum().backward(); torch.cuda.synchronize()
        told["wrapper_bytes"] = torch.cuda.memory_allocated() - base
    else:
        from torch.distributed.fsdp import fully_shard
        for layer in model: fully_shard(layer)
        fully_shard(model)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        model(x).sum().backward(); torch.cuda.synchronize()
        # The shards of the gradients stay: they belong to the training.
        told["wrapper_bytes"] = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
meet("e")
print(json.dumps(told), flush=True)
dist.destroy_process_group()
"""


def command(*words, timeout=100, **env):
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "whichrank", *words], capture_output=True, text=True, timeout=timeout, env={**ENV, **env}
    )
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = {"stdout": done.stdout[-2000:]}
    return {
        "rc": done.returncode,
        "seconds": round(time.monotonic() - began, 1),
        "document": document,
        "stderr": done.stderr[-1500:],
    }


def job(world, what, **env):
    """The ranks of one job, and what each of them saw."""
    port = str(20000 + (time.monotonic_ns() // 1000) % 20000)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, json.dumps(what)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**ENV, "RANK": str(r), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": port, **env},
        )
        for r in range(world)
    ]  # fmt: skip
    found = []
    for process in started:
        try:
            out, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        lines = [line for line in out.splitlines() if line.startswith("{")]
        found.append(json.loads(lines[-1]) if lines else {"error": err[-600:]})
    return found


def budgets():
    """Predicted and taken, for several settings."""
    from whichrank.flows.preflight.memory_budget import Job, budget, measured

    context = measured()
    cases = []
    for world, env, what in (
        (2, {}, {}),
        (2, {"NCCL_MIN_NCHANNELS": "8"}, {}),
        (2, {"NCCL_BUFFSIZE": str(16 << 20)}, {}),
        (4, {}, {}),
        (2, {}, {"params": 200_000_000, "units": 8, "strategy": "ddp"}),
        (2, {}, {"params": 200_000_000, "units": 8, "strategy": "ddp", "view": True}),
        (2, {}, {"params": 200_000_000, "units": 8, "strategy": "fsdp"}),
    ):
        ranks = job(world, what, **env)
        wished = Job(
            world, 1, what.get("params", 0), 4, strategy=what.get("strategy", "none"), units=what.get("units", 1),
            bucket_view=what.get("view", False), gpudirect=False, settings=env,
            context_bytes=context.get("context_bytes"),
        )  # fmt: skip
        parts = {part.what: part.octets for part in budget(wished)}
        case = {"world": world, "env": env, "what": what, "predicted": parts}
        if all("after_nccl_free" in r for r in ranks):
            case["nccl_bytes_per_rank"] = (ranks[0]["context_only_free"] - ranks[0]["after_nccl_free"]) / world
            case["wrapper_bytes"] = ranks[0].get("wrapper_bytes")
            case["model_bytes"] = ranks[0].get("model_bytes")
        else:
            case["ranks"] = ranks
        cases.append(case)
    return {"context": context, "cases": cases}


def main():
    if "--budget" in sys.argv:
        json.dump(budgets(), sys.stdout, indent=1)
        return
    report = {"host": command("preflight", "--quick", "--format", "json", "--nproc-per-node", "1")}
    report["bench"] = command(
        "bench", "--backend", "nccl", "--nproc-per-node", "2", "--sizes", "1M,64M", "--seconds", "0.3", "--quiet",
        "--format", "json", "--stragglers",
    )  # fmt: skip
    report["budget"] = budgets()
    json.dump(report, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
