"""Time and memory of `whichrank diagnose` on flight-recorder dumps, beside torch's own analyser on the same files.

diagnose_dumps.py [--ranks 64 256 1024] [--entries 2000] [--repeat 3]

CPU is that of all processes, memory the largest sum over them at one time; of several runs the median counts.
Torch's analyser runs on the smallest job only: on 1,024 ranks it takes several minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from benchmarks import _torch_shape as torch_shape  # noqa: E402

WHICHRANK = [sys.executable, "-m", "whichrank", "diagnose", "--format", "json", "--quiet"]
ANALYSER = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", "-p", "trace_rank_"]
# What is promised: the share of the analyser's CPU time, and CPU seconds and memory for 1,024 ranks of 2,000 entries.
SHARE, LARGE, CPU_S, MEMORY_MB = 1 / 15, 1024, 16.0, 300


@dataclass(frozen=True)
class Cost:
    """What one run took."""

    cpu_s: float
    wall_s: float
    peak_mb: int
    output: bytes


def memory_kb(pid: int) -> int:
    """Resident memory of a process and its children."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        status = [Path(f"/proc/{one}/status").read_text() for one in [str(pid), *children]]
    except OSError:  # one of them has just ended
        return 0
    lines = [line for text in status for line in text.splitlines() if line.startswith("VmRSS")]
    return sum(int(line.split()[1]) for line in lines)


def run(command: list[str]) -> Cost:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    # Compiled modules are kept, as they are where a package is installed.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, env=environment)
        peak = 0
        while process.poll() is None:
            peak = max(peak, memory_kb(process.pid))
            time.sleep(0.02)
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        output.seek(0)
        text = output.read()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, wall, peak // 1024, text)


def median(command: list[str], repeat: int) -> Cost:
    costs = [run(command) for _ in range(repeat)]
    middle = [statistics.median(getattr(cost, name) for cost in costs) for name in ("cpu_s", "wall_s", "peak_mb")]
    return Cost(middle[0], middle[1], int(middle[2]), costs[-1].output)


def named(cost: Cost) -> list[int]:
    return json.loads(cost.output)["verdict"]["culprits"]["ranks"]


def measure(folder: Path, ranks: int, entries: int, repeat: int) -> Cost:
    stopped = torch_shape.write(folder, ranks, entries)
    run([*WHICHRANK, str(folder / "trace_rank_0")])  # compile and cache
    cost = median([*WHICHRANK, str(folder)], repeat)
    if named(cost) != [stopped]:
        raise SystemExit(f"wrong answer: {named(cost)}, not {[stopped]}")
    each = cost.cpu_s / (ranks * entries) * 1e6
    print(
        f"whichrank      {ranks:5} x {entries}: {cost.cpu_s:6.2f} s CPU, {cost.wall_s:6.2f} s wall, "
        f"{cost.peak_mb:4} MB, {each:.1f} us per entry"
    )
    return cost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    kept = True
    with tempfile.TemporaryDirectory() as made:
        costs = {}
        for ranks in given.ranks:
            costs[ranks] = measure(Path(made) / str(ranks), ranks, given.entries, given.repeat)
        smallest = min(costs)
        theirs = median([*ANALYSER, str(Path(made) / str(smallest))], given.repeat)
    print(
        f"torchfrtrace   {smallest:5} x {given.entries}: {theirs.cpu_s:6.2f} s CPU, {theirs.wall_s:6.2f} s wall, "
        f"{theirs.peak_mb:4} MB"
    )
    share = costs[smallest].cpu_s / theirs.cpu_s
    print(f"share of torchfrtrace's CPU: 1/{1 / share:.1f} (promised: 1/{1 / SHARE:.0f})")
    kept &= share <= SHARE
    if LARGE in costs:
        large = costs[LARGE]
        print(f"{LARGE} ranks: {large.cpu_s:.1f} s CPU (promised: {CPU_S}), {large.peak_mb} MB (promised: {MEMORY_MB})")
        kept &= large.cpu_s <= CPU_S and large.peak_mb <= MEMORY_MB
    print("within the bars" if kept else "NOT within the bars")
    return 0


if __name__ == "__main__":
    sys.exit(main())
