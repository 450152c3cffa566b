"""What `whichrank profile` costs: step times of a real job before, while and after it records, and without it.

    .venv/bin/python benchmarks/profile_overhead.py [--turns 6] [--kept FILE]

Two Gloo ranks whose steps mostly sleep, so that two cores are enough for both. Jobs with and without the profile take
turns; the medians of their steps are compared by pairs, with the 95 % interval of the mean difference. With --kept
each pair is added to those in the file, and all of them are compared: a long measurement can be taken in parts.
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
from pathlib import Path

from _paired import difference

ROOT = Path(__file__).parent.parent
JOB = ROOT / "tests" / "jobs" / "steps.py"
SKIP, RECORDED, STEPS = 15, 10, 45


def times(place: Path, *, profiled: bool, shapes: bool) -> list[float]:
    out = place / "times.json"
    variables = {"STEPS": str(STEPS), "PAUSE_S": "0.01", "TIMES": str(out), "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **variables, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(JOB)]
    if profiled:
        options = ["--skip", str(SKIP), "--steps", str(RECORDED), "--no-report", "--quiet", "--out", str(place / "out")]
        options += [] if shapes else ["--no-shapes"]
        command = [sys.executable, "-m", "whichrank", "profile", *options, "--", *command]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)
    return json.loads(out.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--no-shapes", action="store_true")
    parser.add_argument("--kept", type=Path, help="JSON lines, one for each pair of jobs")
    chosen = parser.parse_args()
    parts = {
        "before": slice(5, SKIP - 1),
        "while": slice(SKIP + 2, SKIP + RECORDED),
        "after": slice(SKIP + RECORDED + 4, STEPS),
    }
    kept = chosen.kept.read_text().splitlines() if chosen.kept and chosen.kept.exists() else []
    pairs: list[dict] = [json.loads(line) for line in kept]
    with tempfile.TemporaryDirectory() as place:
        for turn in range(len(pairs), len(pairs) + chosen.turns):
            pair = {}
            for profiled in (True, False) if turn % 2 else (False, True):
                took = times(Path(place), profiled=profiled, shapes=not chosen.no_shapes)
                pair["with" if profiled else "without"] = {p: statistics.median(took[s]) for p, s in parts.items()}
            pairs.append(pair)
            if chosen.kept:
                with chosen.kept.open("a") as stream:
                    print(json.dumps(pair), file=stream)
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
