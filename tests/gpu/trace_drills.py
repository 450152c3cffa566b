"""What a straggler costs, said and measured: with a core for every rank, then on ranks that share a GPU. JSON lines.

    python3 tests/gpu/trace_drills.py [RUNS] [CORES CORES…] > trace_drills.jsonl

RUNS (20) drills of each kind (host, compute, data) by 8 Gloo ranks on each set of cores (0-7 and 8-15), before them 6
with other buckets by 4 ranks on each: about 5 minutes. Then two NCCL ranks on one GPU: their kernels take turns on it,
so this shows that lateness, its reason and its cost are read rightly from CUDA profiles, not what a fix returns on GPUs
of their own. Last, whether `profile --nvtx` puts ranges around collectives, as CUPTI sees them.
It stops itself LIMIT_S (360) seconds after its start and prints each result at once. It needs torch, numpy and msgspec,
nothing installed beside, and says within seconds what is missing. With OUT set the profiles are packed into it.
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DRILL = ROOT / "benchmarks" / "straggler_cost.py"
ENDS = time.monotonic() + float(os.environ.get("LIMIT_S", "360"))
GPU_S, NVTX_S = 90.0, 30.0
"""Kept for the parts with the GPU."""
MOST_TARS, TAR_BYTES = 5, 15 << 20
NVTX_JOB = """
import ctypes, glob, json, os, sys
import torch
places = [*sys.path, os.path.dirname(torch.__file__) + "/..", "/usr/local/cuda"]
inside = ("nvidia/*/lib", "extras/CUPTI/lib64", "targets/*/lib")
found = [f for place in places for below in inside for f in glob.glob(f"{place}/{below}/libcupti.so*")]
os.environ["NVTX_INJECTION64_PATH"] = found[0]
cupti = ctypes.CDLL(found[0])
class Data(ctypes.Structure):
    _fields_ = [("function", ctypes.c_char_p), ("parameters", ctypes.c_void_p), ("answer", ctypes.c_void_p)]
names = {}
@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(Data))
def heard(_, domain, number, data):
    if data.contents.function and data.contents.function.startswith(b"nvtxRangePushA"):
        text = ctypes.cast(data.contents.parameters, ctypes.POINTER(ctypes.c_char_p))[0].decode().split(",")[0]
        names[text] = names.get(text, 0) + 1
subscriber = ctypes.c_void_p()
told = {"cupti": found[0], "subscribe": cupti.cuptiSubscribe(ctypes.byref(subscriber), heard, None)}
told["enable"] = cupti.cuptiEnableDomain(1, subscriber, 5)  # CUPTI_CB_DOMAIN_NVTX
import torch.distributed as dist
from whichrank.worker.profiler import Profile
dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
profile = Profile(dict(folder=sys.argv[1], skip=2, steps=3, seconds=60, most_bytes=1 << 28, shapes=True, stacks=False,
                       nvtx=True))
profile.watch()
for step in range(10):
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
profile.end()
told["files"] = sorted(os.listdir(sys.argv[1]))
told["errors"] = [open(f).read() for f in glob.glob(sys.argv[1] + "/*.txt")]
told["ranges"] = {name: count for name, count in names.items() if "reduce" in name or "nccl" in name or "comms" in name}
told["all_ranges"] = sum(names.values())
print("@@" + json.dumps({"nvtx": told}), flush=True)
os._exit(0)
"""


def left(keep=0.0):
    return ENDS - time.monotonic() - keep


def drilled(out, *options):
    return subprocess.run([sys.executable, "-u", str(DRILL), *options, "--keep", str(out)], check=False).returncode


def ranges(place):
    """What `profile --nvtx` emits in a job of one rank."""
    job = Path(place) / "nvtx.py"
    job.write_text(NVTX_JOB)
    folder = Path(place) / "nvtx"
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=1",
        str(job),
        str(folder),
    ]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=max(10.0, left()))
    except subprocess.TimeoutExpired:
        print(json.dumps({"nvtx": "took too long"}), flush=True)
        return
    lines = [line[2:] for line in done.stdout.splitlines() if line.startswith("@@")]
    print(*(lines or [json.dumps({"nvtx": done.stderr[-1500:]})]), flush=True)


def packed(place, out):
    """Profiles and times in archives that are small enough to be sent, as many as fit."""
    parts, size = [], TAR_BYTES
    for folder in sorted(told.parent for told in Path(place).glob("**/times.json")):
        more = sum(file.stat().st_size + 1024 for file in folder.iterdir())
        if size + more > TAR_BYTES:
            parts, size = [*parts, []], 0
        parts[-1].append(folder)
        size += more
    for number, folders in enumerate(parts[:MOST_TARS]):
        with tarfile.open(f"{out}/profiles{number}.tar", "w") as tar:
            for folder in folders:
                tar.add(folder, arcname=str(folder.relative_to(place)))


def main():
    import torch

    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    most = max(os.sched_getaffinity(0)) + 1
    cores = sys.argv[2:] or (["0-7", "8-15"] if most >= 16 else [f"0-{most - 1}"])
    on = [word for some in cores for word in ("--cores", some)]
    gpu = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as place:
        limit = left(GPU_S + NVTX_S if gpu else 0.0)
        failed = drilled(f"{place}/gloo", "--drills", str(3 * runs), "--buckets", "6", "--limit-s", str(limit), *on)
        if gpu and not failed:
            ranges(place)
            limit = str(max(20.0, left(5.0)))
            on_gpu = ["--device", "cuda", "--ranks", "2", "--drills", "3", "--buckets", "4", "--limit-s", limit]
            drilled(f"{place}/nccl", *on_gpu)
        if os.environ.get("OUT"):
            packed(place, os.environ["OUT"])
    return failed


if __name__ == "__main__":
    sys.exit(main())
