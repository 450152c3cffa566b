"""What `whichrank profile` costs: step times of a real job before, while and after it records, and without it.

    .venv/bin/python benchmarks/profile_overhead.py [--turns 6] [--kept FILE] [--device cuda] [--limit-s 170]

Two Gloo ranks whose steps mostly sleep, so that two cores are enough for both; or one NCCL rank alone on a GPU that
computes without a pause. Jobs with and without the profile take turns; the medians of their steps are compared by
pairs, with the 95 % interval of the mean difference. With --kept each pair is added to those in the file, and all of
them are compared: a long measurement can be taken in parts; --limit-s begins no pair that would end later. Nothing but
torch needs to be installed: the package is found beside this file, the job is tests/jobs/steps.py.
The bars: at most 2 % while it records; before and after, the interval includes 0.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _paired import difference

ROOT = Path(__file__).parent.parent
JOB = ROOT / "tests" / "jobs" / "steps.py"
SKIP, RECORDED, STEPS = 15, 10, 45


PROFILED = """
import sys
from pathlib import Path
from whichrank.run import profile
wishes = profile.Wishes(skip=int(sys.argv[2]), steps=int(sys.argv[3]), shapes=sys.argv[4] == "True")
sys.exit(profile.run(sys.argv[5:], Path(sys.argv[1]), wishes, lambda text: None))
"""
"""What `whichrank profile` does, without the command line, whose packages a GPU machine may lack."""
ON = {
    "cpu": {"RANKS": "2", "PAUSE_S": "0.01"},
    "cuda": {"RANKS": "1", "DEVICE": "cuda", "WIDTH": "4096", "TIMES_AS_LARGE": "512", "BUCKET_MB": "25"},
}


def times(place: Path, device: str, *, profiled: bool, shapes: bool) -> list[float]:
    """Seconds of each step of one job."""
    out = place / "times.json"
    variables = {"STEPS": str(STEPS), "TIMES": str(out), "OMP_NUM_THREADS": "1", **ON[device]}
    environment = {**os.environ, **variables, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc_per_node={ON[device]['RANKS']}", str(JOB)]
    if profiled:
        options = [str(place / "out"), str(SKIP), str(RECORDED), str(shapes)]
        command = [sys.executable, "-c", PROFILED, *options, *command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        sys.exit(f"a job failed: {done.stderr[-2000:]}")
    if profiled and not any((place / "out").glob("rank-*")):
        sys.exit(f"nothing was recorded: {done.stderr[-2000:]}")
    shutil.rmtree(place / "out", ignore_errors=True)
    return json.loads(out.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--shapes", action="store_true")
    parser.add_argument("--device", choices=tuple(ON), default="cpu")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin no pair that would end later")
    parser.add_argument("--kept", type=Path, help="JSON lines, one for each pair of jobs")
    chosen = parser.parse_args()
    parts = {
        "before": slice(5, SKIP - 1),
        "while": slice(SKIP + 2, SKIP + RECORDED),
        "after": slice(SKIP + RECORDED + 4, STEPS),
    }
    kept = chosen.kept.read_text().splitlines() if chosen.kept and chosen.kept.exists() else []
    pairs: list[dict] = [json.loads(line) for line in kept]
    begun, before, longest = time.monotonic(), len(pairs), 0.0
    with tempfile.TemporaryDirectory() as place:
        for turn in range(before, before + chosen.turns):
            now = time.monotonic()
            if now - begun + longest > chosen.limit_s:
                break
            pair = {}
            for profiled in (True, False) if turn % 2 else (False, True):
                took = times(Path(place), chosen.device, profiled=profiled, shapes=chosen.shapes)
                pair["with" if profiled else "without"] = {p: statistics.median(took[s]) for p, s in parts.items()}
            pairs.append(pair)
            longest = max(longest, time.monotonic() - now)
            print(json.dumps(pair), flush=True)
            if chosen.kept:
                with chosen.kept.open("a") as stream:
                    print(json.dumps(pair), file=stream)
    print(f"{len(pairs)} pairs on {chosen.device}")
    if len(pairs) < 2:
        return
    for part in parts:
        without, with_it = ([pair[kind][part] for pair in pairs] for kind in ("without", "with"))
        apart, margin = difference(with_it, without)
        base = statistics.mean(without)
        shown = [f"{100 * value / base:+.2f}" for value in (apart, apart - margin, apart + margin)]
        print(f"{part}: {shown[0]} % of {1e3 * base:.1f} ms [{shown[1]}, {shown[2]}]")


if __name__ == "__main__":
    main()
