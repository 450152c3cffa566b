"""What `whichrank trace` says that a straggler costs, and that other buckets return, beside what is really measured.

    .venv/bin/python benchmarks/straggler_cost.py [--ranks 8] [--drills 20] [--buckets 4] [--keep DIR]

A real DDP job on Gloo: one rank loses 100 ms per step (on its host, in computation, in its data loader), a different
one in every drill. Steps with and without the delay are measured in the same processes, before and behind the profile.
The bars: the rank and the reason in every drill, the cost within 10 % of the measured difference; the step time that is
predicted without the straggler, or with one bucket instead of many, within 15 % of the real one.
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

from whichrank.flows.trace.analyse import trace

HERE = Path(__file__).parent
REASON = {"host": "host", "compute": "compute", "data": "data-loader"}


def plans(drills: int, buckets: int, ranks: int) -> list[dict]:
    """First those with a late rank, then those with many small buckets and nobody late."""
    late = {"layers": 8, "width": 64, "pause_s": 0.004, "bucket_mb": 0.02, "delay_s": 0.1}
    found = [
        {**late, "kind": ("host", "compute", "data")[turn % 3], "slow": (3 * turn + 1) % ranks}
        for turn in range(drills)
    ]
    many = {"kind": "none", "slow": -1, "delay_s": 0.0, "width": 128, "bucket_mb": 0.05, "other_mb": 64}
    return [*found, *({**many, "layers": 12 + 8 * turn, "pause_s": 0.001 * turn} for turn in range(buckets))]


def run(wanted: list[dict], ranks: int, out: Path) -> None:
    plan = out / "plan.json"
    plan.write_text(json.dumps(wanted))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "src"), "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, str(HERE / "_step_drills.py"), str(plan), str(out)], env=environment, check=True)


def judged(folder: Path) -> dict:
    """One experiment: what was said, and what was measured, in milliseconds per step."""
    told = json.loads((folder / "times.json").read_text())
    plan = told["plan"]
    ms = {name: 1e3 * statistics.median(times) for name, times in told.items() if name != "plan"}
    report = trace([folder])
    found = {"kind": plan["kind"], "slow": plan["slow"], **{name: round(value, 1) for name, value in ms.items()}}
    if plan["kind"] != "none":
        late = report.stragglers[0] if report.stragglers else None
        measured = ms["with"] - ms["without"]
        right = late is not None and (late.rank, late.reason) == (plan["slow"], REASON[plan["kind"]])
        cost = (late.cost_us_per_step or 0.0) / 1e3 if late is not None else 0.0
        found |= {
            "named": right and len(report.stragglers) == 1,
            "cost": round(cost, 1),
            "measured": round(measured, 1),
        }
        found["cost_off_pct"] = round(100 * (cost - measured) / measured, 1)
        found["predicted_off_pct"] = round(100 * (ms["with"] - cost - ms["without"]) / ms["without"], 1)
    else:
        gain = max((a.gain_us_per_step or 0.0 for a in report.advice if "buckets" in a.id), default=0.0) / 1e3
        found |= {"gain": round(gain, 1), "predicted": round(ms["with"] - gain, 1)}
        found["predicted_off_pct"] = round(100 * (ms["with"] - gain - ms["other"]) / ms["other"], 1)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--drills", type=int, default=20)
    parser.add_argument("--buckets", type=int, default=4)
    parser.add_argument("--keep", type=Path, help="where the profiles and the measured times go")
    parser.add_argument("--judge", type=Path, help="judge what was kept, without a new run")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        out = asked.judge or asked.keep or Path(place)
        out.mkdir(parents=True, exist_ok=True)
        if asked.judge is None:
            run(plans(asked.drills, asked.buckets, asked.ranks), asked.ranks, out)
        found = [judged(folder) for folder in sorted(out.iterdir()) if (folder / "times.json").exists()]
    for one in found:
        print(json.dumps(one), flush=True)
    drills = [one for one in found if one["kind"] != "none"]
    others = [one for one in found if one["kind"] == "none"]
    print(
        f"{sum(one['named'] for one in drills)} of {len(drills)} named with the right reason; cost within 10 % in "
        f"{sum(abs(one['cost_off_pct']) <= 10 for one in drills)}; step time without the straggler within 15 % in "
        f"{sum(abs(one['predicted_off_pct']) <= 15 for one in drills)}; with one bucket within 15 % in "
        f"{sum(abs(one['predicted_off_pct']) <= 15 for one in others)} of {len(others)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
