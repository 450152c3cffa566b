"""What `whichrank trace` says that a step takes with other bucket sizes, beside the steps of real re-runs.

    .venv/bin/python benchmarks/bucket_sizes.py [--ranks 2] [--rate 2gbit] [--plans 4] [--keep DIR | --judge DIR]

A real DDP job on Gloo trains one model with several values of bucket_cap_mb in turns (`_bucket_drills.py`), and each is
profiled once. From every profile the step with each of the other sizes, larger and smaller, is predicted and compared
with the median of what was measured: the step as it is told (`off_pct`), and what it is told to change by, added to the
usual step of the profiled size (`change_off_pct`): other load while six steps were recorded is in the first, not in the
second. With --rate the job runs in a network of its own whose loopback moves so much (`tc`, needs root): a network
between hosts instead of copies that take cores from the ranks. Without it Gloo's threads compete with the ranks for the
cores, which no replay knows of.
The bar: every step that is told, larger or smaller, within 15 % of the real one. As in the advice, one whose range is
wider than that is left open, and so is one whose steps took over 15 % longer in the recording than before it. A re-run
whose blocks (but for the fastest and the slowest) lie further apart than that judges nothing.
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

HERE = Path(__file__).resolve().parent
SOURCE = str(HERE.parent / "src")
sys.path[:0] = [SOURCE]

from whichrank.flows.trace.analyse import read_profiles, together  # noqa: E402
from whichrank.timeline.steps.bucket_advice import slowed_by  # noqa: E402

WITHIN = 0.15


def plans(count: int) -> list[dict]:
    """Models of several depths and widths; `pause_s` is computation that needs no core."""
    usual = {"kind": "none", "slow": -1, "delay_s": 0.0, "mixed": True, "rounds": 7}
    return [
        {
            **usual,
            "layers": (10, 20, 16, 32)[turn % 4],
            "width": (448, 160, 320, 96)[turn % 4],
            "pause_s": (0.006, 0.0025, 0.001, 0.003)[turn % 4],
            "forward_s": 0.01 * (1 + turn % 3),
            "caps": ([0.5, 3, 8, 64], [0.1, 0.4, 1.5, 25], [0.5, 2, 5, 25], [0.05, 0.2, 0.8, 25])[turn % 4],
        }
        for turn in range(count)
    ]


def run(wanted: list[dict], ranks: int, rate: str, out: Path) -> None:
    """All plans in one job; in a network of its own where a rate is given."""
    (out / "plans.json").write_text(json.dumps(wanted))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    command += [str(HERE / "_bucket_drills.py"), str(out / "plans.json"), str(out)]
    if rate:
        # The queue holds 400 ms of data: nothing is dropped, as on a link with flow control.
        slow = f"tc qdisc add dev lo root tbf rate {rate} burst 256kb latency 400ms"
        command = ["unshare", "--net", "sh", "-c", f'ip link set lo up && {slow} && exec "$@"', "sh", *command]
    environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    with (out / "job.log").open("w") as log:
        done = subprocess.run(command, env=environment, stdout=log, stderr=log, check=False)
    if done.returncode:
        sys.exit(f"the job failed: {(out / 'job.log').read_text()[-2000:]}")


def judged(folder: Path) -> list[dict]:
    """One plan: from the profile of each size the step with each of the others, in milliseconds."""
    told = json.loads((folder / "times.json").read_text())
    blocks = {cap: sorted(1e3 * one for one in times) for cap, times in told["times"].items()}
    found = []
    for cap, own in blocks.items():
        steps = together(read_profiles([folder / cap])[0])
        if steps.backward is None:
            sys.exit(f"{folder / cap} does not tell of its gradients")
        disturbed = slowed_by(steps.matched) > 1 + WITHIN
        for other, times in blocks.items():
            if other == cap:
                continue
            one = steps.backward.predicted(steps.step_ns, steps.backward.filled(float(other) * (1 << 20)))
            likely, low, high = (value / 1e6 for value in (one.likely, one.low, one.high))
            real, usual = statistics.median(times), statistics.median(own)
            found.append(
                {
                    "model": f"{told['plan']['layers']} x {told['plan']['width']}",
                    "profiled_mb": cap,
                    "other_mb": other,
                    "kind": "larger" if float(other) > float(cap) else "smaller",
                    "buckets": [len(steps.backward.recorded), one.buckets],
                    "profiled_ms": steps.step_ns / 1e6,
                    "predicted_ms": likely,
                    "low_ms": low,
                    "high_ms": high,
                    "measured_ms": real,
                    "off_pct": 100 * (likely / real - 1),
                    "change_off_pct": 100 * ((usual + likely - steps.step_ns / 1e6) / real - 1),
                    "left_open": high - low > 2 * WITHIN * (high + low) / 2 or disturbed,
                    "measured_well": times[-2] - times[1] <= 2 * WITHIN * real,
                }
            )
    return found


def summed(found: list[dict]) -> dict:
    """How many of each kind were told, and how far off they were."""
    answer: dict = {}
    for kind in ("larger", "smaller"):
        mine = [one for one in found if one["kind"] == kind and one["measured_well"]]
        off = sorted(abs(one["off_pct"]) for one in mine if not one["left_open"])
        answer[kind] = {
            "predictions": sum(one["kind"] == kind for one in found),
            "measured_too_badly": sum(one["kind"] == kind and not one["measured_well"] for one in found),
            "left_open": sum(one["left_open"] for one in mine),
            "told": len(off),
            "within_15_pct": sum(one <= 100 * WITHIN for one in off),
            "change_within_15_pct": sum(
                abs(one["change_off_pct"]) <= 100 * WITHIN for one in mine if not one["left_open"]
            ),
            "median_off_pct": round(statistics.median(off), 1) if off else None,
            "worst_off_pct": round(off[-1], 1) if off else None,
            "open_within_15_pct": sum(one["left_open"] and abs(one["off_pct"]) <= 100 * WITHIN for one in mine),
        }
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rate", default="", help="what the loopback of the job's own network moves, as tc writes it")
    parser.add_argument("--plans", type=int, default=4)
    parser.add_argument("--keep", type=Path, help="where the profiles and the measured times go")
    parser.add_argument("--judge", type=Path, help="judge what was kept, without a new run")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        out = asked.judge or asked.keep or Path(place)
        if asked.judge is None:
            out.mkdir(parents=True, exist_ok=True)
            run(plans(asked.plans), asked.ranks, asked.rate, out)
        found = [one for told in sorted(out.glob("*/times.json")) for one in judged(told.parent)]
    for one in found:
        print(json.dumps({key: round(value, 1) if isinstance(value, float) else value for key, value in one.items()}))
    print(json.dumps(summed(found)))


if __name__ == "__main__":
    main()
