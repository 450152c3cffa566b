"""What `whichrank run` costs a step of 250 ms: added CPU, and the interval of the added wall time.

One rank on Gloo that computes and reduces, in turns with and without: on, off, on, off … The CPU is that of
the rank with all its threads; what the watcher outside takes is in `run_overhead.py`.

python benchmarks/step_overhead.py [ROUNDS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent)]

from benchmarks import run_overhead  # noqa: E402

ROUNDS, STEP_S, STEPS = 10, 0.25, 24
SHARE = 0.001
"""Of a step: added CPU."""
RANK = """
import json, resource, time
import torch, torch.distributed as dist
def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
torch.set_num_threads(1)
dist.init_process_group("gloo")
gradients = [torch.ones(1000) for _ in range(20)]
def step():
    end = time.monotonic() + 0.25
    for one in gradients:
        dist.all_reduce(one)
    time.sleep(max(0.0, end - time.monotonic()))
for _ in range(8):
    step()
cpu, began = used(), time.monotonic()
for _ in range(STEPS):
    step()
wall = time.monotonic() - began
print(json.dumps({"cpu_us": (used() - cpu) / STEPS * 1e6, "wall_us": wall / STEPS * 1e6}))
dist.destroy_process_group()
"""


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    run_overhead.RANK = RANK.replace("STEPS", str(STEPS))
    on, off = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            on.append(run_overhead.turn(True, Path(folder) / str(number)))
            off.append(run_overhead.turn(False, Path(folder)))
    inside = [a["cpu_us"] - b["cpu_us"] for a, b in zip(on, off, strict=True)]
    wall = [a["wall_us"] - b["wall_us"] for a, b in zip(on, off, strict=True)]
    share = statistics.median(inside) / (STEP_S * 1e6)
    print(f"added CPU in the rank  {run_overhead.spread(inside)} us of a step of {STEP_S * 1000:.0f} ms: {share:.3%}")
    print(f"added wall time        {run_overhead.spread(wall)} us")
    print(f"{'ok  ' if share <= SHARE else 'MISS'} added CPU: {share:.3%} (wanted: at most {SHARE:.1%})")
    return 0 if share <= SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
