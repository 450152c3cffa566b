"""On one real GPU: the host checks, `bench` beside a second timer, the memory budget beside what is taken.

    python tests/gpu/preflight_h200.py > preflight.json      all parts, about two minutes; progress goes to stderr
    python tests/gpu/preflight_h200.py host|timer|memory     one of them

Ranks share the GPU because each has a NCCL_HOSTID of its own; their traffic goes over sockets of this machine: the
bandwidths say nothing about NVLink. Every part has a limit, and what it started is ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))
os.environ["PYTHONPATH"] = str(ROOT / "src")  # for everything that is started below
BEGAN = time.monotonic()
MIB = 1 << 20


def say(words: str) -> None:
    sys.stderr.write(f"[{time.monotonic() - BEGAN:6.1f} s] {words}\n")
    sys.stderr.flush()


# -- the host


def command(*words: str, limit_s: float = 60) -> dict:
    """What `whichrank` says, its exit code and how long it took."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "whichrank", *words], capture_output=True, text=True, timeout=limit_s,
        check=False,
    )  # fmt: skip
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = done.stdout[-1500:]
    say(f"whichrank {' '.join(words[:3])}: code {done.returncode}")
    seconds = round(time.monotonic() - began, 1)
    return {"rc": done.returncode, "seconds": seconds, "document": document, "stderr": done.stderr[-600:]}


QUERY = (
    "name,driver_version,memory.total,ecc.errors.uncorrected.volatile.total,ecc.errors.uncorrected.aggregate.total,"
    "temperature.gpu,clocks.sm,clocks.max.sm,power.draw,pcie.link.gen.current,pcie.link.width.current,pci.bus_id"
)


def host() -> dict:
    """Every check with its state, the values that the probes read, and the driver's own words beside them."""
    from functools import partial

    from whichrank.evidence.probes import Place, _child, discover

    asked = {
        "quick": ("--quick", "--nproc-per-node", "1"),
        "too_many_ranks": ("--quick", "--nproc-per-node", "8"),
        "map": ("--map", "here"),
        "budget": ("--model-params", "1B", "--strategy", "fsdp", "--units", "16", "--nproc-per-node", "2"),
    }
    with ThreadPoolExecutor() as pool:  # they mostly wait
        answers = pool.map(lambda words: command("preflight", *words, "--format", "json"), asked.values())
        told = dict(zip(asked, answers, strict=True))
    told["full"] = command("preflight", "--full", "--nproc-per-node", "1", "--format", "json")
    probes = discover()
    names = ("gpus", "pci", "software", "topology", "rdma")
    values = _child.bounded({n: (partial(probes[n].measure, Place()), probes[n].LIMIT_S) for n in names})
    told["probes"] = {name: answer._asdict() for name, answer in values.items()}
    words = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv"]
    told["nvidia_smi"] = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False).stdout
    return told


# -- bench beside another timer

# One rank. "same": a wall clock around the very calls that the benchmark makes; it learns where a batch begins from
# `reset`, and on a GPU that the one before has ended. "own": buffers, loops and formulas of its own; its batches lie
# between those of the benchmark, so that what disturbs the machine disturbs both.
TIMER = r"""
import json, os, statistics as st, time, torch, torch.distributed as dist
from datetime import timedelta
os.environ["NCCL_HOSTID"] = "host-" + os.environ["RANK"]
from whichrank.facts.hardware.bandwidth import bandwidths
from whichrank.worker.bench import collectives
from whichrank.worker.bench import rank as bench
GPU = torch.cuda.is_available()
device = torch.device("cuda", 0) if GPU else torch.device("cpu")
if GPU: torch.cuda.set_device(0)
else: torch.set_num_threads(1)
dist.init_process_group("nccl" if GPU else "gloo", timeout=timedelta(seconds=60))
n, me = dist.get_world_size(), dist.get_rank()
sync = torch.cuda.synchronize if GPU else (lambda: None)

def slowest(times):
    x = torch.tensor(times, dtype=torch.float64, device=device)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    return x.tolist()

def own(name, octets):
    "A function that times one more batch."
    k = octets // 4 // n
    a, b, whole, part = (torch.ones(s, device=device) for s in (n * k, n * k, n * k, k))
    def swap():
        ops = [dist.P2POp(dist.isend, a, (me + 1) % n), dist.P2POp(dist.irecv, b, (me - 1) % n)]
        for w in dist.batch_isend_irecv(ops): w.wait()
    one = {
        "all_reduce": lambda: dist.all_reduce(a), "broadcast": lambda: dist.broadcast(a, 0),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "all_to_all": lambda: dist.all_to_all_single(b, a), "send_recv": swap,
    }[name]
    def batch(calls):
        a.zero_(); dist.barrier(); sync()
        t = time.perf_counter()
        for _ in range(calls): one()
        sync()
        return (time.perf_counter() - t) / calls
    batch(3)
    calls = max(1, int(0.004 / min(slowest([batch(3), batch(3), batch(3)]))))
    more = lambda: batch(calls)
    more.calls = calls
    return more

SHARE = {"all_reduce": 2 * (n - 1) / n, "all_gather": (n - 1) / n, "reduce_scatter": (n - 1) / n, "broadcast": 1,
         "all_to_all": (n - 1) / n, "send_recv": 1}
SIZES = [int(s) for s in os.environ["SIZES"].split(",")]
for name, share in SHARE.items():
    for octets in SIZES:
        real, other = collectives.prepare(name, octets, torch.float32, device), own(name, octets)
        batches, others = [], []
        def call():
            if batches and batches[-1][0] is None:
                sync(); batches[-1][0] = time.perf_counter()
            real.call()
            if batches: batches[-1][2] += 1
            if batches and not GPU: batches[-1][1] = time.perf_counter()
        def reset():
            if batches and GPU: batches[-1][1] = time.perf_counter()
            batches.append([None, None, 0]); real.reset()
        def between():
            others.append(other()); real.reset()
        told = bench.measure(real._replace(call=call, reset=reset), 0.25, device)
        same = st.median(slowest([(e - s) / c for s, e, c in batches if e is not None]))
        beside = bench.measure(real._replace(reset=between), float(os.environ["BESIDE_S"]), device).seconds
        theirs = st.median(slowest(others))
        busbw = bandwidths(name, real.octets, told.seconds, n)[1]
        if me == 0:
            print(json.dumps({
                "collective": name, "bytes": real.octets, "busbw": busbw, "same": real.octets * share / same / 1e9,
                "same_ratio": real.octets * share / same / 1e9 / busbw, "calls": told.calls, "batches": told.batches,
                "own": real.octets * share / theirs / 1e9, "own_batches": len(others), "own_calls": other.calls,
                "own_ratio": real.octets * share / theirs / 1e9 / bandwidths(name, real.octets, beside, n)[1]}),
                flush=True)
dist.barrier(); dist.destroy_process_group()
"""


def ranks_of(world: int, program: str, limit_s: float, **env: str) -> list[subprocess.Popen]:
    port = str(20000 + (time.monotonic_ns() // 1000) % 20000)
    common = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **env}
    return [
        subprocess.Popen(
            ["timeout", "-k", "3", str(limit_s), sys.executable, "-c", program], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **common, "RANK": str(r)},
            start_new_session=True,
        )
        for r in range(world)
    ]  # fmt: skip


def end(ranks: list[subprocess.Popen]) -> None:
    for rank in ranks:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(rank.pid, signal.SIGKILL)
        rank.wait(10)


def timer(sizes: str = "65536,1048576,16777216", beside_s: float = 0.6, limit_s: float = 90) -> dict:
    """The bar: both ratios, the second timer's busbw over the benchmark's, within 5 % of one."""
    ranks = ranks_of(2, TIMER, limit_s, SIZES=sizes, BESIDE_S=str(beside_s))
    try:
        said = [rank.communicate(timeout=limit_s + 10) for rank in ranks]
    finally:
        end(ranks)
    rows = [json.loads(line) for line in said[0][0].splitlines() if line.startswith("{")]
    whole = len(rows) == 6 * len(sizes.split(","))
    return {
        "rows": rows, "whole": whole, "errors": [] if whole else [err[-600:] for _, err in said],
        "same_worst": max((abs(r["same_ratio"] - 1) for r in rows), default=None),
        "own_worst": max((abs(r["own_ratio"] - 1) for r in rows), default=None),
    }  # fmt: skip


# -- memory

# One rank: says what it has done and waits until the GPU was looked at from outside.
TAKER = r"""
import gc, json, os, sys, torch, torch.distributed as dist
os.environ["NCCL_HOSTID"] = "host-" + os.environ["RANK"]
torch.cuda.set_device(0)
torch.zeros(1, device="cuda"); torch.cuda.synchronize()
dist.init_process_group("nccl")
def stage(name, **more):
    print(json.dumps({"stage": name, "reserved": torch.cuda.memory_reserved(), **more}), flush=True)
    sys.stdin.readline()
stage("context")
x = torch.ones(1 << 20, device="cuda")
for _ in range(3): dist.all_reduce(x)
torch.cuda.synchronize()
stage("nccl")
if os.environ.get("SECOND"):
    second = dist.new_group()
    for _ in range(3): dist.all_reduce(x, group=second)
    torch.cuda.synchronize()
    stage("second communicator")
def linear(units, side, dtype):
    make = lambda: torch.nn.Linear(side, side, bias=False, device="cuda", dtype=dtype)
    return torch.nn.Sequential(*[make() for _ in range(units)])
def step(model, side, dtype):
    model(torch.randn(8, side, device="cuda", dtype=dtype)).float().sum().backward(); torch.cuda.synchronize()
for kind, units, side, dtype in json.loads(os.environ.get("MORE", "[]")):
    type_ = getattr(torch, dtype)
    model = linear(units, side, type_)
    if kind.startswith("ddp"):
        step(model, side, type_); model.zero_grad(set_to_none=False)
        gc.collect(); base = torch.cuda.memory_allocated()
        ddp = torch.nn.parallel.DistributedDataParallel
        wrapped = ddp(model, device_ids=[0], gradient_as_bucket_view="view" in kind)
        after, peaks = [], []
        for _ in range(4):
            torch.cuda.reset_peak_memory_stats()
            step(wrapped, side, type_)
            peaks.append(torch.cuda.max_memory_allocated() - base)
            torch.empty(1, device="cuda")  # lets go of what only waited for a stream
            after.append(torch.cuda.memory_allocated() - base)
        gc.collect()
        kept = torch.cuda.memory_allocated() - base
        stage(kind, case=[kind, units, side, dtype], taken=kept, steps=after, peaks=peaks)
        del wrapped
    else:
        from torch.distributed.fsdp import fully_shard
        for layer in model: fully_shard(layer)
        fully_shard(model)
        torch.cuda.reset_peak_memory_stats()
        step(model, side, type_)
        # The shards of parameters and gradients belong to the training.
        peak = torch.cuda.max_memory_allocated()
        stage(kind, case=[kind, units, side, dtype], taken=peak - torch.cuda.memory_allocated())
    del model; gc.collect(); torch.cuda.empty_cache()
dist.destroy_process_group()
"""
STRATEGIES = [
    ["ddp", 8, 5000, "float32"], ["ddp view", 8, 5000, "float32"], ["ddp", 6, 6000, "bfloat16"],
    ["fsdp", 8, 5000, "float32"], ["fsdp", 16, 4096, "bfloat16"], ["fsdp", 4, 8192, "bfloat16"],
]  # fmt: skip
SETTINGS: list[tuple[int, dict[str, str]]] = [
    # DDP's buckets outlive the wrapper: each case has processes of its own.
    *((2, {"MORE": json.dumps([case])}) for case in STRATEGIES),
    (2, {"SECOND": "yes"}),
    (2, {"NCCL_MIN_NCHANNELS": "8"}),
    (2, {"NCCL_MIN_NCHANNELS": "16", "NCCL_BUFFSIZE": str(16 * MIB)}),
    (2, {"NCCL_MAX_NCHANNELS": "1"}),
    (4, {}),
    (8, {}),
]


def used() -> int:
    """Bytes that the driver counts as used on the GPU."""
    words = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(words, capture_output=True, text=True, timeout=20, check=True).stdout.split()[0]) * MIB


def taken(world: int, env: dict[str, str], limit_s: float = 60) -> list[dict]:
    """Stage by stage: what each rank of the job takes of the GPU besides the tensors of torch."""
    before, stages = used(), []
    ranks = ranks_of(world, TAKER, limit_s, **env)
    try:
        while True:
            lines = [rank.stdout.readline() for rank in ranks]
            if not all(line.startswith("{") for line in lines):
                for rank in ranks:
                    with suppress(subprocess.TimeoutExpired):
                        rank.wait(10)
                failed = [rank.stderr.read()[-400:] for rank in ranks if rank.poll()]
                return [*stages, {"error": failed}] if failed else stages
            told = [json.loads(line) for line in lines]
            each = (used() - before - sum(t["reserved"] for t in told)) / world
            stages.append({**told[0], "each": each})
            for rank in ranks:
                rank.stdin.write("\n")
                rank.stdin.flush()
    finally:
        end(ranks)


def memory() -> dict:
    """The bar: every `ratio` (predicted over taken, of the whole and of each wrapper) within 20 % of one."""
    from whichrank.flows.preflight.memory_budget import Job, budget, measured

    context, rows, raw = measured().get("context_bytes"), [], []

    def row(what: str, predicted: float, real: float) -> None:
        # Where next to nothing is predicted and taken, a ratio says nothing.
        ratio = round(predicted / real, 3) if max(abs(predicted), abs(real)) > 8 * MIB and real else None
        rows.append({"what": what, "predicted_mib": round(predicted / MIB, 1), "taken_mib": round(real / MIB, 1),
                     "ratio": ratio})  # fmt: skip

    for world, env in SETTINGS:
        settings = {name: value for name, value in env.items() if name.startswith("NCCL_")}
        stages = taken(world, env)
        say(f"memory of {world} ranks with {settings or 'defaults'}: {len(stages)} stages")
        raw.append({"world": world, "settings": settings, "stages": stages})
        for stage in stages:
            if "error" in stage:
                rows.append({"what": f"{world} ranks {settings}", **stage})
            elif stage["stage"] in ("context", "nccl", "second communicator"):
                many = {"context": 1, "nccl": 1, "second communicator": 2}[stage["stage"]]
                job = Job(1 if stage["stage"] == "context" else world, 1, gpudirect=False, settings=settings,
                          communicators=many, context_bytes=context)  # fmt: skip
                predicted = sum(part.octets for part in budget(job))
                words = f"{world} ranks, {settings or 'defaults'}"
                row(f"all up to {stage['stage']}, {words}", predicted, stage["each"])
                if stage["stage"] != "context":
                    own = sum(part.octets for part in budget(job) if part.what.startswith("NCCL"))
                    row(f"of it NCCL, {words}", own, stage["each"] - stages[0]["each"])
            else:
                kind, units, side, dtype = stage["case"]
                size = 4 if dtype == "float32" else 2
                job = Job(world, 1, units * side * side, size, strategy=kind[:4].strip(), units=units,
                          bucket_view="view" in kind, gpudirect=False)  # fmt: skip
                parts = [part.octets for part in budget(job) if part.what.startswith(("DDP", "FSDP"))]
                row(f"{kind}, {units} units of {side} x {side} {dtype}", sum(parts), stage["taken"])
    ratios = [r["ratio"] for r in rows if r.get("ratio") is not None]
    return {"context_measured": context, "rows": rows, "worst": max((abs(r - 1) for r in ratios), default=None),
            "raw": raw}  # fmt: skip


def in_short(name: str, told: dict) -> str:
    """What decides, in one line."""
    if "failed" in told:
        return f"{name}: {told['failed']}"
    if name == "timer":
        return f"timer: {len(told['rows'])} rows, off by at most {told['same_worst']}, {told['own_worst']}"
    if name == "memory":
        errors = [row for row in told["rows"] if "error" in row]
        return f"memory: {len(told['rows'])} rows, off by at most {told['worst']}, errors {errors}"
    return f"{name}: codes {[part['rc'] for part in told.values() if isinstance(part, dict) and 'rc' in part]}"


PARTS = {"host": host, "timer": timer, "memory": memory}


def main() -> int:
    wanted = [word for word in sys.argv[1:] if word in PARTS] or list(PARTS)
    report: dict = {}
    for name in wanted:
        say(f"part {name}")
        try:
            report[name] = PARTS[name]()
        except Exception as error:  # noqa: BLE001 - the other parts still count
            report[name] = {"failed": f"{type(error).__name__}: {error}"[:500]}
        say(in_short(name, report[name]))
    report["seconds"] = round(time.monotonic() - BEGAN, 1)
    json.dump(report, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
