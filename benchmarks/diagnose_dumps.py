"""Time and memory of `whichrank diagnose` on flight-recorder dumps, beside torch's own analyser on the same files.

diagnose_dumps.py [--ranks 64 256 1024] [--entries 2000] [--repeat 3] [--folder DIR]

CPU is that of all processes, memory the largest sum over them at one time; of several runs the median counts.
Torch's analyser runs on the smallest job only, in turns with ours: on 1,024 ranks it takes several minutes. The
decoder in Python (WHICHRANK_NATIVE=0: what there is without a compiler) runs up to 1,024 ranks. 16,384 ranks take 7 GB
of disk and some minutes to write: `--ranks 64 1024 16384 --folder /somewhere/large`.
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
# What is wanted: 64 ranks in 1/50 of the analyser's CPU time; 1,024 in 1/4 of what the decoder in Python takes, and in
# 200 MB; 16,384 in 60 s on two cores and 1 GB; CPU time per rank within 10 % from 1,024 to 16,384.
SHARE, LARGE, OF_PYTHON, MEMORY_MB = 1 / 50, 1024, 1 / 4, 200
HUGE, HUGE_WALL_S, HUGE_MEMORY_MB, GROWTH = 16_384, 60, 1024, 1.10


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


def run(command: list[str], **more: str) -> Cost:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **more}
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


def median(command: list[str], repeat: int, **more: str) -> Cost:
    return middle_of([run(command, **more) for _ in range(repeat)])


def in_turns(one: list[str], other: list[str], repeat: int) -> tuple[Cost, Cost]:
    """Both commands as often, one after the other: what else the machine does hits both alike."""
    turns = [(run(one), run(other)) for _ in range(repeat)]
    return middle_of([mine for mine, _ in turns]), middle_of([theirs for _, theirs in turns])


def middle_of(costs: list[Cost]) -> Cost:
    middle = [statistics.median(getattr(cost, name) for cost in costs) for name in ("cpu_s", "wall_s", "peak_mb")]
    return Cost(middle[0], middle[1], int(middle[2]), costs[-1].output)


def named(cost: Cost) -> list[int]:
    return json.loads(cost.output)["verdict"]["culprits"]["ranks"]


def measure(folder: Path, ranks: int, entries: int, repeat: int) -> Cost:
    """What we take, on dumps that are written if they are not there."""
    stopped = ranks * 5 // 8 + 1
    if not (folder / f"trace_rank_{ranks - 1}").exists():
        stopped = torch_shape.write(folder, ranks, entries)
    run([*WHICHRANK, str(folder / "trace_rank_0")])  # compile and cache
    cost = median([*WHICHRANK, str(folder)], repeat if ranks <= LARGE else 1)
    if named(cost) != [stopped]:
        raise SystemExit(f"wrong answer: {named(cost)}, not {[stopped]}")
    tell("whichrank", ranks, entries, cost)
    return cost


def tell(who: str, ranks: int, entries: int, cost: Cost) -> None:
    each = cost.cpu_s / (ranks * entries) * 1e6
    print(
        f"{who:14} {ranks:6} x {entries}: {cost.cpu_s:6.2f} s CPU, {cost.wall_s:6.2f} s wall, {cost.peak_mb:4} MB, "
        f"{each:.2f} us per entry",
        flush=True,
    )


def bar(what: str, value: float, most: float) -> bool:
    print(f"{'ok  ' if value <= most else 'MISS'} {what}: {value:.3g} (wanted: at most {most:.3g})", flush=True)
    return value <= most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where dumps are written, and found again; else they are temporary")
    given = parser.parse_args()
    kept = True
    with tempfile.TemporaryDirectory() as made:
        base, costs = given.folder or Path(made), {}
        for ranks in sorted(given.ranks):
            costs[ranks] = measure(base / str(ranks), ranks, given.entries, given.repeat)
            if ranks == LARGE:
                python = median([*WHICHRANK, str(base / str(ranks))], given.repeat, WHICHRANK_NATIVE="0")
                tell("without C", ranks, given.entries, python)
        smallest = min(costs)
        folder = str(base / str(smallest))
        ours, theirs = in_turns([*WHICHRANK, folder], [*ANALYSER, folder], given.repeat)
        tell("whichrank", smallest, given.entries, ours)
        tell("torchfrtrace", smallest, given.entries, theirs)
    kept &= bar(f"{smallest} ranks, share of torchfrtrace's CPU", ours.cpu_s / theirs.cpu_s, SHARE)
    if LARGE in costs:
        kept &= bar(f"{LARGE} ranks, share of the CPU without C", costs[LARGE].cpu_s / python.cpu_s, OF_PYTHON)
        kept &= bar(f"{LARGE} ranks, MB", costs[LARGE].peak_mb, MEMORY_MB)
    if HUGE in costs:
        kept &= bar(f"{HUGE} ranks, s of wall time", costs[HUGE].wall_s, HUGE_WALL_S)
        kept &= bar(f"{HUGE} ranks, MB", costs[HUGE].peak_mb, HUGE_MEMORY_MB)
    if HUGE in costs and LARGE in costs:
        growth = (costs[HUGE].cpu_s / HUGE) / (costs[LARGE].cpu_s / LARGE)
        kept &= bar(f"CPU per rank, {HUGE} ranks beside {LARGE}", growth, GROWTH)
    print("within the bars" if kept else "NOT within the bars")
    return 0


if __name__ == "__main__":
    sys.exit(main())
