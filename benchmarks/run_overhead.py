"""What `whichrank run` costs: CPU per collective inside a rank, and of the watcher outside.

One rank on Gloo, all_reduce in a loop, in turns with and without: on, off, on, off … Both turns have the same
settings, so that the difference is the hook's alone.

python benchmarks/run_overhead.py [ROUNDS]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = 8.0
INSIDE_US, OUTSIDE_SHARE = 2.0, 0.005

RANK = """
import json, os, time
import torch, torch.distributed as dist
def cpu_of_parent():
    fields = open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
torch.set_num_threads(1)
dist.init_process_group("gloo")
x = torch.ones(8)
for _ in range(2000):
    dist.all_reduce(x)
watcher = cpu_of_parent()
count, began, cpu = 0, time.monotonic(), time.process_time()
while time.monotonic() - began < SECONDS:
    for _ in range(100):
        dist.all_reduce(x)
    count += 100
used, wall = time.process_time() - cpu, time.monotonic() - began
watcher = cpu_of_parent() - watcher
print(json.dumps({"us": used / count * 1e6, "count": count, "wall": wall, "watcher": watcher}))
dist.destroy_process_group()
"""


def turn(watched: bool, folder: Path, port: int) -> dict[str, float]:
    """One run; CPU microseconds per collective."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH_", "NCCL_"))}
    environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1",
                   TORCH_FR_BUFFER_SIZE="2000")  # fmt: skip
    command = [sys.executable, "-c", RANK.replace("SECONDS", str(SECONDS))]
    if watched:
        command = [sys.executable, "-m", "whichrank", "run", "--out", str(folder), "--", *command]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    on, off = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            on.append(turn(True, Path(folder) / str(number), 29610 + 2 * number))
            off.append(turn(False, Path(folder), 29611 + 2 * number))
    extra = statistics.median(a["us"] - b["us"] for a, b in zip(on, off, strict=True))
    watcher = statistics.median(each["watcher"] / each["wall"] for each in on)
    print(f"watched      {', '.join(format(t['us'], '.2f') for t in on)} us per collective")
    print(f"unwatched    {', '.join(format(t['us'], '.2f') for t in off)} us per collective")
    print(f"difference   {extra:+.2f} us per collective (bar: {INSIDE_US})")
    print(f"the watcher  {watcher:.2%} of a core (bar: {OUTSIDE_SHARE:.2%} per rank)")
    return 0 if extra <= INSIDE_US and watcher <= OUTSIDE_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
