"""On a machine with one real GPU: host checks by NVML, bench over NCCL with ranks that share the GPU, a second timer,
the sweep. Run by hand: `python tests/gpu/bench.py`, at most three minutes; prints one JSON document.

Ranks share the GPU because each has a NCCL_HOSTID of its own; their traffic goes over sockets of this machine, so the
bandwidths say nothing about NVLink. `--parts host,bench` runs a part of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

SRC = str(Path(__file__).parents[2] / "src")
sys.path.insert(0, SRC)
ENV = {**os.environ, "PYTHONPATH": SRC}
LIMIT_S = 175.0
BEGAN = time.monotonic()

# A timer of its own around the very same calls: where batches begin is all that it learns from the benchmark.
TIMER = """
import json, os, statistics, time, torch, torch.distributed as dist
os.environ["NCCL_HOSTID"] = "host-" + os.environ["RANK"]
from whichrank.facts.bandwidth import bandwidths
from whichrank.worker import bench, collectives
torch.cuda.set_device(0); device = torch.device("cuda", 0)
dist.init_process_group("nccl")
n, ratios = dist.get_world_size(), {}
for name, share in (("all_reduce", 2 * (n - 1) / n), ("all_gather", (n - 1) / n), ("broadcast", 1)):
    for octets in (4 << 20, 64 << 20):
        real, batches = collectives.prepare(name, octets, torch.float32, device), []
        def call():
            if batches and batches[-1][0] is None:
                torch.cuda.synchronize()
                batches[-1][0] = time.perf_counter()
            real.call()
            if batches: batches[-1][2] += 1
        def reset():
            batches.append([None, None, 0])
            real.reset()
        kept = bench._batch
        def batch(run, calls, device):
            took = kept(run, calls, device)
            if batches and batches[-1][1] is None and batches[-1][0] is not None:
                torch.cuda.synchronize()
                batches[-1][1] = time.perf_counter()
            return took
        bench._batch = batch
        told = bench.measure(real._replace(call=call, reset=reset), 0.5, device)
        bench._batch = kept
        own = [(end - start) / count for start, end, count in batches if count and end]
        everyone = [None] * n
        dist.all_gather_object(everyone, own)
        seconds = statistics.median(map(max, zip(*everyone)))
        ours = bandwidths(name, real.octets, told.seconds, n)[1]
        ratios[f"{name} {octets}"] = real.octets * share / seconds / 1e9 / ours
if dist.get_rank() == 0: print(json.dumps(ratios), flush=True)
dist.destroy_process_group()
"""


def left() -> float:
    return LIMIT_S - (time.monotonic() - BEGAN)


def command(*words: str, **env: str) -> dict:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "whichrank", *words], capture_output=True, text=True, timeout=max(5.0, left()),
        env={**ENV, **env}, check=False,
    )  # fmt: skip
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = {"stdout": done.stdout[-2000:]}
    return {"rc": done.returncode, "seconds": round(time.monotonic() - began, 1), "document": document,
            "stderr": done.stderr[-1000:]}  # fmt: skip


def host() -> dict:
    """The checks, and the probes that need a real machine with what they measured."""
    from whichrank.evidence.probes import Place, discover

    told = command("preflight", "--quick", "--nproc-per-node", "1", "--format", "json")
    told["topology"] = command("preflight", "--map", "here", "--format", "json")
    told["budget"] = command(
        "preflight", "--model-params", "1B", "--strategy", "fsdp", "--units", "16", "--nproc-per-node", "2", "--format",
        "json",
    )  # fmt: skip
    probes = discover()
    for name in ("gpus", "pci", "software", "topology", "rdma"):
        began = time.monotonic()
        try:
            told[name] = probes[name].measure(Place())
        except Exception as error:  # noqa: BLE001 - a probe says why it has nothing by raising
            told[name] = f"{type(error).__name__}: {error}"
        told[f"{name}_s"] = round(time.monotonic() - began, 2)
    return told


def bench() -> dict:
    """Two and four ranks on the one GPU."""
    common = ("bench", "--backend", "nccl", "--seconds", "0.2", "--quiet", "--format", "json")
    two = command(*common, "--nproc-per-node", "2", "--sizes", "1M,64M", "--stragglers")
    four = command(*common, "--nproc-per-node", "4", "--sizes", "16M", "--collective", "all_reduce")
    return {"two": two, "four": four}


def timer() -> dict:
    """Our busbw against the other timer's: every ratio should be within 5 % of one."""
    port = str(20000 + os.getpid() % 20000)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TIMER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**ENV, "RANK": str(r), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
        )
        for r in range(2)
    ]  # fmt: skip
    said = []
    for rank in ranks:
        try:
            said.append(rank.communicate(timeout=min(60.0, max(5.0, left()))))
        except subprocess.TimeoutExpired:
            rank.kill()
            said.append(rank.communicate())
    lines = [line for line in said[0][0].splitlines() if line.startswith("{")]
    if not lines:
        return {"error": said[0][1][-800:]}
    ratios = json.loads(lines[-1])
    return {"ratios": ratios, "worst": max(abs(ratio - 1) for ratio in ratios.values())}


def sweeps() -> dict:
    """A planted advantage (a tiny buffer in the environment, one candidate takes it back), and none."""
    from whichrank.fleet.engines import here
    from whichrank.flows.bench.measure import Plan
    from whichrank.flows.bench.sweep import runner, sweep

    plan = Plan(("all_reduce",), (64 << 20,), "nccl", "float32", 0.3, 2)
    found = {}
    tried = {
        "planted": ({"NCCL_BUFFSIZE": "65536"}, [{"NCCL_BUFFSIZE": str(8 << 20)}], 0.5),
        "none": ({}, [{"NCCL_BUFFSIZE": str(4 << 20)}], 0.9),
    }
    for name, (planted, candidates, share) in tried.items():
        if left() < 25:
            found[name] = "skipped: no time left"
            continue
        os.environ.update(planted)
        try:
            told = sweep(runner(here.engine(), plan, sys.executable), candidates, left() * share)
        finally:
            for key in planted:
                os.environ.pop(key)
        found[name] = {
            "winner": dict(told.winner), "gain": told.gain, "noise": told.noise, "reason": told.reason,
            "seconds": round(told.seconds, 1), "runs": [list(t.speeds) for t in told.trials],
            "rematch": [list(t.speeds) for t in told.rematch] if told.rematch else None,
        }  # fmt: skip
    return found


def main() -> None:
    parts = {"host": host, "bench": bench, "timer": timer, "sweep": sweeps}
    wanted = sys.argv[sys.argv.index("--parts") + 1].split(",") if "--parts" in sys.argv else list(parts)
    report: dict = {}
    for name in wanted:
        began = time.monotonic()
        try:
            report[name] = parts[name]() if left() > 10 else "skipped: no time left"
        except Exception as error:  # noqa: BLE001 - the other parts still count
            report[name] = f"{type(error).__name__}: {error}"[:500]
        report[f"{name}_s"] = round(time.monotonic() - began, 1)
    report["seconds"] = round(time.monotonic() - BEGAN, 1)
    json.dump(report, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
