"""On one GPU: does `trace` see overlap, stragglers and `profile` on real CUDA profiles? Prints JSON.

Several NCCL ranks share the GPU (each with its own NCCL_HOSTID), so kernels of different ranks compete: this shows that
the reading, the shares and the late rank are right, not what a fix returns on separate GPUs.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
JOB = """
import os, time, torch, torch.distributed as dist
os.environ["NCCL_HOSTID"] = os.environ["RANK"]
torch.cuda.set_device(0)
dist.init_process_group("nccl")
rank = dist.get_rank()
layers = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(20):
    if rank == 1 and os.environ["KIND"] == "host":
        time.sleep(0.05)
    x = torch.randn(512, 2048, device="cuda")
    y = model(x)
    if rank == 1 and os.environ["KIND"] == "compute":
        a = torch.randn(8192, 8192, device="cuda")
        for _ in range(20):
            a = a @ a * 1e-4
    y.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
dist.destroy_process_group()
"""


def main():
    answers = {}
    for kind in ("none", "host", "compute"):
        with tempfile.TemporaryDirectory() as place:
            script = Path(place) / "train.py"
            script.write_text(JOB)
            out = Path(place) / "out"
            env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "KIND": kind, "NCCL_P2P_DISABLE": "1"}
            launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(script)]
            command = [sys.executable, "-m", "whichrank", "profile", "--no-report", "--skip", "5", "--steps", "5"]
            done = subprocess.run(
                [*command, "--out", str(out), "--", *launch], env=env, capture_output=True, text=True, timeout=150
            )
            told = subprocess.run([sys.executable, "-m", "whichrank", "trace", str(out), "--format", "json"], env=env,
                                  capture_output=True, text=True, timeout=60)  # fmt: skip
            try:
                found = json.loads(told.stdout)
            except ValueError:
                answers[kind] = {"error": (done.stderr[-600:], told.stderr[-600:])}
                continue
            keys = (
                "rank",
                "steps",
                "step_us",
                "compute_pct",
                "exposed_pct",
                "overlap_pct",
                "waiting_pct",
                "idle_pct",
                "hta",
            )
            answers[kind] = {
                "ranks": [{key: one[key] for key in keys} for one in found["ranks"]],
                "stragglers": found["stragglers"],
                "collectives": found["collectives"][:3],
                "replay_error_pct": found["replay_error_pct"],
            }
    print(json.dumps(answers, indent=1))


if __name__ == "__main__":
    main()
