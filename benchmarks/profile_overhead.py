"""What `whichrank profile` costs: steps of a real job before, while and after it records, beside steps without it.

    .venv/bin/python benchmarks/profile_overhead.py [--pairs 16] [--device cuda] [--shapes]

One job makes as many steps as are wanted. Stretches of them with a profile, as the hook of `whichrank profile` takes it
(start, steps, stop, writing), and stretches without take turns, so that what else the machine does hits both alike. The
medians of a stretch's steps are compared with those at the same places of its neighbour, by time and by CPU of the
rank; told is the median of the differences with its 95 % interval. Two Gloo ranks whose steps mostly sleep, so that two
cores are enough for both; or one NCCL rank alone on a GPU that computes without a pause. Nothing but torch needs to be
installed: the package is found beside this file, the job is tests/jobs/steps.py.
The bars: at most 2 % while it records; before and after, the interval includes 0.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from _paired import usual_difference

ROOT = Path(__file__).parent.parent
JOB = ROOT / "tests" / "jobs" / "steps.py"
SKIP, RECORDED, LENGTH = 15, 10, 45
PARTS = {
    "before": slice(5, SKIP - 1),
    "while": slice(SKIP + 2, SKIP + RECORDED),
    "after": slice(SKIP + RECORDED + 4, LENGTH),
}
MOST = 0.02
"""Of a step, while it records."""
RANK = """
import json, os, runpy, sys, time
from torch.optim.optimizer import register_optimizer_step_post_hook
from whichrank.worker.profiler import Profile

wishes, length, script, out = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
stamps, now = [], None

def stepped(optimizer, *_):
    global now
    stretch, place = divmod(len(stamps), length)
    stamps.append((time.monotonic(), time.process_time()))
    if place == 0:
        # with, without, without, with: a drift hits both alike
        now = Profile(wishes) if stretch % 4 in (0, 3) else None
    if now is not None:
        now.stepped(optimizer)

register_optimizer_step_post_hook(stepped)
try:
    runpy.run_path(script, run_name="__main__")
finally:
    if os.environ["RANK"] == "0":
        with open(out, "w") as stream:
            json.dump(stamps, stream)
"""
ON = {
    "cpu": {"RANKS": "2", "PAUSE_S": "0.01"},
    "cuda": {"RANKS": "1", "DEVICE": "cuda", "WIDTH": "4096", "TIMES_AS_LARGE": "512", "BUCKET_MB": "25"},
}


def stamps(place: Path, device: str, pairs: int, *, shapes: bool) -> list[tuple[float, float]]:
    """When each step of the job ended, and the CPU time of its first rank by then."""
    wishes = {"folder": str(place), "skip": SKIP, "steps": RECORDED, "seconds": 60, "most_bytes": 1 << 28}
    wishes |= {"shapes": shapes, "stacks": False, "nvtx": False}
    out, rank = place / "stamps.json", place / "rank.py"
    rank.write_text(RANK, encoding="utf-8")
    variables = {"STEPS": str(2 * pairs * LENGTH + 1), "OMP_NUM_THREADS": "1", **ON[device]}
    environment = {**os.environ, **variables, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [
        f"--nproc_per_node={ON[device]['RANKS']}",
        str(rank),
        json.dumps(wishes),
        str(LENGTH),
        str(JOB),
        str(out),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the job failed: {done.stderr[:3000]}")
    if not (place / "rank-0.json.gz").exists() or list(place.glob("*.error.txt")):
        sys.exit(f"nothing was recorded: {done.stderr[-2000:]}")
    return [tuple(one) for one in json.loads(out.read_text())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=16, help="stretches with a profile, and as many without")
    parser.add_argument("--shapes", action="store_true")
    parser.add_argument("--device", choices=tuple(ON), default="cpu")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        noted = stamps(Path(place), chosen.device, chosen.pairs, shapes=chosen.shapes)
    load = os.getloadavg()[0]
    print(f"{chosen.pairs} pairs of stretches on {chosen.device}; load {load:.1f}")
    kept = True
    for part, steps in PARTS.items():
        for number, what in enumerate(("time", "CPU")):
            took = [after[number] - before[number] for before, after in pairwise(noted)]
            middle = [statistics.median(took[at : at + LENGTH][steps]) for at in range(0, len(took), LENGTH)]
            pairs = [middle[at : at + 2][:: 1 if at % 4 == 0 else -1] for at in range(0, 2 * chosen.pairs, 2)]
            with_it, without = zip(*pairs, strict=True)
            apart, low, high = usual_difference(with_it, without)
            base = statistics.median(after[0] - before[0] for before, after in pairwise(noted))
            shown = [f"{100 * value / base:+.2f}" for value in (apart, low, high)]
            within = apart <= MOST * base if part == "while" else low <= 0 <= high
            kept &= within or what == "CPU"
            print(f"{part}: {what} {shown[0]} % of a step of {1e3 * base:.1f} ms [{shown[1]}, {shown[2]}]")
    print("within the bars" if kept else "NOT within the bars")
    return 0


if __name__ == "__main__":
    sys.exit(main())
