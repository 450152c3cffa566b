"""The guard on a GPU: every fault of the lab on NCCL, and what the guard costs on a model of 100 million parameters.

    python3 tests/gpu/guard.py [RUNS] > guard.json

Four NCCL ranks share one GPU (each with its own NCCL_HOSTID). Prints one JSON document. It takes GUARD_LIMIT_S seconds
(235) at most: what does not fit into the time is listed under "skipped". With GUARD_ONLY_FAULTS=1 the cost
is not measured.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent.parent
LIMIT_S = float(os.environ.get("GUARD_LIMIT_S", "235"))
FAULTS = [
    "flipped_bit_parameter", "flipped_bit_state", "flipped_bit_gradient", "flipped_bit_activation",
    "gpu_multiplies_wrong", "gpu_always_wrong", "missed_broadcast", "other_seed", "other_learning_rate",
    "other_schedule",
    "other_batch_order", "stale_parameter", "nan_in_batch", "guarded_reduce_op",
]  # fmt: skip
BEGAN = time.monotonic()


def left():
    return LIMIT_S - (time.monotonic() - BEGAN)


def diagnosed(folder, fault, plan):
    sys.path.insert(0, str(HERE / "src"))
    from whichrank.flows.diagnose.pipeline import diagnose
    from whichrank.lab import catalogue
    from whichrank.lab.truth import mark, of_verdict
    from whichrank.report.json import as_document

    verdict = json.loads(json.dumps(as_document(diagnose([folder], jobs=1))["verdict"], default=int))
    truth = catalogue.find(fault).truth(plan)
    marked = mark(truth, of_verdict(verdict))
    link = (verdict["certificate"] or [{}])[0]
    return {"right": marked.right, "exact": marked.exact, "accused": marked.accused, "cause": verdict["cause"],
            "ranks": verdict["culprits"]["ranks"], "step": link.get("step"), "summary": verdict["summary"]}  # fmt: skip


def run_fault(fault, seed, world=4):
    """The ranks are started one by one: a CUDA context does not survive a fork."""
    sys.path.insert(0, str(HERE / "src"))
    from whichrank.lab import catalogue, place, setup
    from whichrank.lab.workloads import plan as plans
    from whichrank.run.watch import private

    where, folder = place.make(), private.make()
    plan = plans.make(fault, seed, world, "nccl")._replace(steps=40, pace_s=0.01)
    made = setup.prepare(where, catalogue.find(fault), plan, "fork")
    base = {**os.environ, **made.variables(), **private.variables(folder, os.environ, "on"),
            "WHICHRANK_GUARD_EVERY": "1", "MASTER_PORT": str(setup.free_port())}  # fmt: skip
    script = str(where / "code" / "train.py")
    ranks = [
        subprocess.Popen([sys.executable, script], env={**base, "RANK": str(r), "LOCAL_RANK": str(r)},
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for r in range(world)
    ]  # fmt: skip
    return fault, seed, plan, where, folder, ranks


def collect(fault, seed, plan, where, folder, ranks):
    outputs = []
    for rank in ranks:
        try:
            outputs.append(rank.communicate(timeout=max(5.0, min(90.0, left())))[0])
        except subprocess.TimeoutExpired:
            rank.kill()
            outputs.append(rank.communicate()[0])
    records = where / "records"
    records.mkdir()
    for path in folder.glob("*.guard"):
        shutil.copy(path, records / path.name)
    try:
        told = diagnosed(records, fault, plan)
    except Exception as error:  # noqa: BLE001
        told = {"error": f"{type(error).__name__}: {error}"}
    codes = [rank.returncode for rank in ranks]
    if any(codes):
        told["output"] = outputs[0][-600:].decode("utf-8", "replace")
    off = [line for path in records.glob("*.guard") for line in path.read_text().splitlines() if '"t":"off"' in line]
    shutil.rmtree(where, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "fault": fault,
        "seed": seed,
        "rank": plan.rank,
        "struck": plan.step,
        "codes": codes,
        "off": off[:2],
        **told,
    }


def overhead():
    """12 layers of 2,880 x 2,880: 100 million parameters; the batch makes a step of about 250 ms of an H200.

    One rank alone: two on one GPU take turns, and what one of them adds is lost in the noise of that."""
    environment = {**os.environ, "GUARD_FOLDER": tempfile.mkdtemp()}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=1", "--master_port=29613",
               str(HERE / "benchmarks" / "guard_overhead.py"), "--device", "cuda", "--width", "2880", "--layers", "12",
               "--batch", "19968", "--seconds", "70"]  # fmt: skip
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=min(110.0, left()))
    except subprocess.TimeoutExpired:
        return {"error": "took too long"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"error": done.stderr[-800:]}


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    report = {"faults": [], "skipped": []}
    if not os.environ.get("GUARD_ONLY_FAULTS"):
        report["overhead"] = overhead()
    for seed in range(runs):
        for first in range(0, len(FAULTS), 4):  # four jobs of four ranks at a time
            wanted = FAULTS[first : first + 4]
            if left() < 35:
                report["skipped"] += [f"{fault} {seed}" for fault in wanted]
                continue
            started = [run_fault(fault, seed) for fault in wanted]
            report["faults"] += [collect(*each) for each in started]
    judged = report["faults"]
    report["right"] = sum(bool(f.get("right") and f.get("exact")) for f in judged)
    report["of"] = len(judged)
    report["seconds"] = round(time.monotonic() - BEGAN, 1)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
