"""What `whichrank trace` says that a straggler costs, and that other buckets return, beside what is really measured.

    .venv/bin/python benchmarks/straggler_cost.py [--ranks 8] [--drills 20] [--buckets 4] [--keep DIR]

A real DDP job on Gloo: one rank loses 100 ms per step (on its host, in computation, in its data loader), a different
one in every drill. Blocks of steps with and without the delay alternate in the same processes, around the profile: the
measured difference is the mean over the pairs of blocks, with its 95 % interval.
The bars: the rank and the reason in every drill, the cost within 10 % of the measured difference; the step time that is
predicted without the straggler, or with one bucket instead of many, within 15 % of the real one. Where ranks share
cores, part of what is measured is their contention: give every rank a core (`--cores 0-7`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from _paired import difference

from whichrank.flows.trace.analyse import trace

HERE = Path(__file__).parent
REASON = {"host": "host", "compute": "compute", "data": "data-loader"}


def plans(drills: int, buckets: int, ranks: int, *, cuda: bool = False) -> list[dict]:
    """First those with many small buckets and nobody late, then those with a late rank."""
    late = {"layers": 8, "width": 64, "pause_s": 0.004, "bucket_mb": 0.02, "delay_s": 0.1}
    late |= {"width": 4096, "pause_s": 0.0, "bucket_mb": 25} if cuda else {}
    found = [
        {**late, "kind": ("host", "compute", "data")[turn % 3], "slow": (3 * turn + 1) % ranks}
        for turn in range(drills)
    ]
    many = {"kind": "none", "slow": -1, "delay_s": 0.0, "width": 128, "bucket_mb": 0.05, "other_mb": 64}
    many |= {"width": 1024, "bucket_mb": 1} if cuda else {}
    return [*({**many, "layers": 12 + 8 * turn, "pause_s": 0.001 * turn} for turn in range(buckets)), *found]


def run(wanted: list[dict], asked: argparse.Namespace, out: Path) -> None:
    """One job on each set of cores; each goes through its part of the experiments."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "src"), "OMP_NUM_THREADS": "1"}
    environment |= {"NCCL_P2P_DISABLE": "1"} if asked.device == "cuda" else {}
    jobs = []
    for number, cores in enumerate(asked.cores or [""]):
        place = out / f"job{number}"
        place.mkdir()
        (place / "plan.json").write_text(json.dumps(wanted[number :: len(asked.cores or [""])]))
        command = [*(["taskset", "-c", cores] if cores else []), sys.executable, "-m", "torch.distributed.run"]
        command += ["--standalone", f"--nproc_per_node={asked.ranks}", str(HERE / "_step_drills.py")]
        command += [str(place / "plan.json"), str(place), asked.device]
        jobs.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
    ends = time.monotonic() + asked.limit_s
    for job in jobs:
        try:
            if job.wait(max(1.0, ends - time.monotonic())):
                print("a job failed: what it had done before is judged", file=sys.stderr)
        except subprocess.TimeoutExpired:
            job.terminate()
            job.wait()


def judged(folder: Path) -> dict:
    """One experiment: what was said, and what was measured, in milliseconds per step."""
    told = json.loads((folder / "times.json").read_text())
    plan = told["plan"]
    with_it, without = ([1e3 * pair[name] for pair in told["pairs"]] for name in ("with", "without"))
    measured, margin = difference(with_it, without)
    now, then = statistics.mean(with_it), statistics.mean(without)
    report = trace([folder])
    found = {"kind": plan["kind"], "slow": plan["slow"], "step": now, "step_without": then}
    found["step_profiled"] = (report.step_us or 0.0) / 1e3
    if plan["kind"] != "none":
        late = report.stragglers[0] if report.stragglers else None
        cost = (late.cost_us_per_step or 0.0) / 1e3 if late is not None else 0.0
        found |= {"rank": late.rank if late else None, "reason": late.reason if late else None}
        found["named"] = len(report.stragglers) == 1 and found["rank"] == plan["slow"]
        found["named"] &= found["reason"] == REASON[plan["kind"]]
    else:
        cost = max((a.gain_us_per_step or 0.0 for a in report.advice if "buckets" in a.id), default=0.0) / 1e3
    found |= {"predicted": cost, "measured": measured, "measured_95": margin}
    found["cost_off_pct"] = 100 * (cost - measured) / measured
    found["step_off_pct"] = 100 * (now - cost - then) / then
    return {key: round(value, 1) if isinstance(value, float) else value for key, value in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--drills", type=int, default=20)
    parser.add_argument("--buckets", type=int, default=4)
    parser.add_argument("--limit-s", type=float, default=3600, help="judge what is done by then")
    parser.add_argument("--cores", action="append", help="a job on these cores; again for another one beside it")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: all ranks share one GPU")
    parser.add_argument("--keep", type=Path, help="where the profiles and the measured times go")
    parser.add_argument("--judge", type=Path, help="judge what was kept, without a new run")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        out = asked.judge or asked.keep or Path(place)
        out.mkdir(parents=True, exist_ok=True)
        if asked.judge is None:
            run(plans(asked.drills, asked.buckets, asked.ranks, cuda=asked.device == "cuda"), asked, out)
        with ProcessPoolExecutor() as pool:
            found = list(pool.map(judged, sorted(told.parent for told in out.glob("**/times.json"))))
    for one in found:
        print(json.dumps(one), flush=True)
    drills = [one for one in found if one["kind"] != "none"]
    others = [one for one in found if one["kind"] == "none"]
    print(
        f"{sum(one['named'] for one in drills)} of {len(drills)} named with the right reason; cost within 10 % in "
        f"{sum(abs(one['cost_off_pct']) <= 10 for one in drills)}; step time without the straggler within 15 % in "
        f"{sum(abs(one['step_off_pct']) <= 15 for one in drills)}; with one bucket within 15 % in "
        f"{sum(abs(one['step_off_pct']) <= 15 for one in others)} of {len(others)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
