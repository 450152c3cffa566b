"""What `whichrank trace` says that a straggler costs, and that other buckets return, beside what is really measured.

    .venv/bin/python benchmarks/straggler_cost.py [--ranks 8] [--drills 20] [--buckets 4] [--keep DIR]

A real DDP job on Gloo: one rank loses 100 ms per step (on its host, in computation, in its data loader), a different
one in every drill. Blocks of steps with and without the delay alternate in the same processes, around the profile: the
measured difference is the median over the pairs of blocks, with its 95 % interval; where that is wider than what a
prediction may be off, other load on the machine was in the way, and the experiment does not count.
The bars: the rank and the reason in every drill, the cost within 10 % of the measured difference; the step time that is
predicted without the straggler, or with one bucket instead of many, within 15 % of the real one, or left open. Where
ranks share cores, part of what is measured is their contention: give every rank a core (`--cores 0-7`), and where
buckets are compared two (half as many ranks run there), since Gloo's threads compute too.
One JSON line for each experiment, as soon as it is done; the last line sums up. Nothing needs to be installed: the
package is found beside this file.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = str(HERE.parent / "src")
sys.path[:0] = [SOURCE, str(HERE)]

from _paired import usual_difference  # noqa: E402

from whichrank.flows.trace.analyse import trace  # noqa: E402

WITHIN = 0.15
"""Of a step: how far a prediction may be off. Where the re-run itself is not known as well, it judges nothing."""
REASON = {"host": "host", "compute": "compute", "data": "data-loader"}


def late_plans(drills: int, ranks: int, *, cuda: bool) -> list[dict]:
    """Somebody loses 100 ms in each step."""
    late = {"layers": 8, "width": 64, "pause_s": 0.004, "bucket_mb": 0.02, "delay_s": 0.1, "pairs": 6}
    late |= {"width": 4096, "pause_s": 0.0, "bucket_mb": 25} if cuda else {}
    return [
        {**late, "kind": ("host", "compute", "data")[turn % 3], "slow": (3 * turn + 1) % ranks}
        for turn in range(drills)
    ]


def bucket_plans(buckets: int, *, cuda: bool) -> list[dict]:
    """Many small buckets, and nobody late. Steps are long enough that what the profile adds to each layer is little."""
    many = {"kind": "none", "slow": -1, "delay_s": 0.0, "width": 128, "bucket_mb": 0.05, "other_mb": 25, "mixed": True}
    many |= {"pairs": 11}
    many |= {"width": 512, "bucket_mb": 0.5} if cuda else {}
    return [
        {**many, "layers": 12 + 8 * turn, "pause_s": 0.0005 * (turn % 2), "forward_s": 0.03 + 0.01 * turn}
        for turn in range(buckets)
    ]


def on_cores(text: str) -> set[int]:
    """`0-3,8` as numbers."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def run(wanted: list[dict], ranks: int, asked: argparse.Namespace, out: Path) -> list[dict]:
    """The experiments, one job on each set of cores beside the others, as far as they come; each is told when done."""
    sets = asked.cores or [""]
    with ThreadPoolExecutor(len(sets)) as pool:
        lanes = [
            pool.submit(lane, wanted[n :: len(sets)], ranks, asked, out / f"on{n}", sets[n]) for n in range(len(sets))
        ]
        return [one for each in lanes for one in each.result()]


def lane(wanted: list[dict], ranks: int, asked: argparse.Namespace, place: Path, cores: str) -> list[dict]:
    """One job on one set of cores; it pauses while each of its experiments is judged on the same cores."""
    place.mkdir(parents=True)
    (place / "plan.json").write_text(json.dumps(wanted))
    environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    environment |= {"NCCL_P2P_DISABLE": "1"} if asked.device == "cuda" else {}
    command = [*(["taskset", "-c", cores] if cores else []), sys.executable, "-m", "torch.distributed.run"]
    command += ["--standalone", f"--nproc_per_node={ranks}", str(HERE / "_step_drills.py")]
    command += [str(place / "plan.json"), str(place), asked.device]
    found = []
    with (place / "job.log").open("w") as log:
        job = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        for number in range(len(wanted)):
            folder = place / f"{number:02d}"
            while not (folder / "times.json").exists() and job.poll() is None and time.monotonic() < asked.ends:
                time.sleep(0.05)
            if not (folder / "times.json").exists():
                if job.poll():
                    print("a job failed:", (place / "job.log").read_text()[-2000:], file=sys.stderr, flush=True)
                break
            found.append(apart(folder, cores))
            print(json.dumps(found[-1]), flush=True)
            (folder / "judged").touch()
        else:
            job.wait(max(1.0, asked.ends - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    finally:
        if job.poll() is None:
            job.terminate()
            job.wait()
    return found


def apart(folder: Path, cores: str) -> dict:
    """Judge in a process of its own, on these cores alone."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(judged_on, (folder, cores))


def judged_on(folder: Path, cores: str) -> dict:
    if cores:
        os.sched_setaffinity(0, on_cores(cores))
    return judged(folder)


def judged(folder: Path) -> dict:
    """One experiment: what was said, and what was measured, in milliseconds per step."""
    told = json.loads((folder / "times.json").read_text())
    plan = told["plan"]
    with_it, without = ([1e3 * pair[name] for pair in told["pairs"]] for name in ("with", "without"))
    measured, least, most = usual_difference(with_it, without)
    now, then = statistics.median(with_it), statistics.median(without)
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
        told = next((a for a in report.advice if "buckets" in a.id), None)
        cost = (told.gain_us_per_step or 0.0) / 1e3 if told is not None else 0.0
        found["left_open"] = told is not None and told.gain_us_per_step is None
        if told is not None and told.gain_range_us_per_step is not None:
            low, high = (end / 1e3 for end in told.gain_range_us_per_step)
            found |= {"low": low, "high": high, "in_range": low <= most and least <= high}
            found["why"] = told.why
    found |= {"predicted": cost, "measured": measured, "measured_least": least, "measured_most": most}
    found["measured_well"] = most - least <= 2 * WITHIN * then
    found["cost_off_pct"] = 100 * (cost - measured) / measured
    found["step_off_pct"] = 100 * (now - cost - then) / then
    return {key: round(value, 1) if isinstance(value, float) else value for key, value in found.items()}


def check() -> None:
    """That the job's processes will find what they need, before anything is waited for."""
    code = "import torch, whichrank.worker.profiler as p; print(torch.__version__, p.__file__)"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": SOURCE}, check=False,
                          capture_output=True, text=True)  # fmt: skip
    told = {"python": sys.executable, "imports": done.stdout.split(), "error": done.stderr[-500:]}
    print(json.dumps({"check": told, "cores": len(os.sched_getaffinity(0))}), flush=True)
    if done.returncode:
        sys.exit("torch or whichrank can't be imported")


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
    asked.ends, cuda = time.monotonic() + asked.limit_s, asked.device == "cuda"
    check()
    with tempfile.TemporaryDirectory() as place:
        out = asked.judge or asked.keep or Path(place)
        if asked.judge is not None:
            found = [judged(told.parent) for told in sorted(out.glob("**/times.json"))]
            print("\n".join(map(json.dumps, found)))
        else:
            buckets, late = bucket_plans(asked.buckets, cuda=cuda), late_plans(asked.drills, asked.ranks, cuda=cuda)
            ends = asked.ends
            asked.ends = time.monotonic() + asked.limit_s / 4 if late else ends
            found = run(buckets, asked.ranks if cuda else max(2, asked.ranks // 2), asked, out / "buckets")
            asked.ends = ends
            found += run(late, asked.ranks, asked, out / "late")
    print(json.dumps(summed(found)), flush=True)
    return 0


def summed(found: list[dict]) -> dict:
    drills = [one for one in found if one["kind"] != "none"]
    others = [one for one in found if one["kind"] == "none"]
    told = [one for one in others if one["measured_well"] and not one["left_open"]]
    return {
        "drills": len(drills),
        "named_with_reason": sum(one["named"] for one in drills),
        "cost_within_10_pct": sum(abs(one["cost_off_pct"]) <= 10 for one in drills),
        "step_without_within_15_pct": sum(abs(one["step_off_pct"]) <= 15 for one in drills),
        "buckets": len(others),
        "measured_too_badly": sum(not one["measured_well"] for one in others),
        "left_open": sum(one["left_open"] for one in others if one["measured_well"]),
        "told_within_15_pct": sum(abs(one["step_off_pct"]) <= 100 * WITHIN for one in told),
        "told_wrong": sum(abs(one["step_off_pct"]) > 100 * WITHIN for one in told),
    }


if __name__ == "__main__":
    sys.exit(main())
