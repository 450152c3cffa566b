"""What a straggler costs, said and measured: with a core for every rank, then on ranks that share a GPU. JSON lines.

    python3 tests/gpu/trace_drills.py [RUNS] [CORES CORES…] > trace_drills.jsonl

RUNS (20) drills of each kind (host, compute, data) and 4 with other buckets, by 8 Gloo ranks on each set of cores (0-7
and 8-15): about 4 minutes; what is done after LIMIT_S (210) seconds is judged. Then two NCCL ranks on one GPU: their
kernels take turns on it, so this shows that lateness, its reason and its cost are read rightly from CUDA profiles, not
what a fix returns on GPUs of their own.
KEEP=DIR keeps the profiles.
"""

import os
import subprocess
import sys
from pathlib import Path

DRILL = Path(__file__).resolve().parents[2] / "benchmarks" / "straggler_cost.py"


def drilled(name, *options):
    keep = ["--keep", f"{os.environ['KEEP']}/{name}"] if "KEEP" in os.environ else []
    subprocess.run([sys.executable, str(DRILL), *options, *keep], check=False)


if __name__ == "__main__":
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    cores = sys.argv[2:] or ["0-7", "8-15"]
    on = [word for some in cores for word in ("--cores", some)]
    limit = os.environ.get("LIMIT_S", "210")
    drilled("gloo", "--drills", str(3 * runs), "--buckets", "4", "--limit-s", limit, *on)
    import torch

    if torch.cuda.is_available():
        drilled("nccl", "--device", "cuda", "--ranks", "2", "--drills", "6", "--buckets", "2", "--limit-s", "60")
