"""What `whichrank run` costs: CPU per collective inside a rank, and of the watcher outside.

One rank on Gloo, all_reduce in a loop, in turns with and without: on, off, on, off … Both turns have the same
settings, so that the difference is the hook's alone. CPU time, not the clock: of the rank with all its threads, as
the kernel counts it for the process. What the recorder's own thread used is shown apart: it is what can be told from
the noise of the loop itself.

python benchmarks/run_overhead.py [ROUNDS]
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import _watched  # noqa: E402

SECONDS, ROUNDS = 6.0, 10
INSIDE_US, OUTSIDE_SHARE = 2.0, 0.005

RANK = """
import json, os, resource, threading, time
import torch, torch.distributed as dist
TICK = os.sysconf("SC_CLK_TCK")
def cpu_of(path):
    fields = open(path).read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK
def cpu_of_recorder():
    ours = [thread.native_id for thread in threading.enumerate() if thread.name == "whichrank"]
    # Nanoseconds on a processor, where ticks of ten milliseconds are too coarse.
    return sum(int(open(f"/proc/self/task/{tid}/schedstat").read().split()[0]) for tid in ours) / 1e9
def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
torch.set_num_threads(1)
dist.init_process_group("gloo")
x = torch.ones(8)
for _ in range(2000):
    dist.all_reduce(x)
watcher, recorder, cpu = cpu_of(f"/proc/{os.getppid()}/stat"), cpu_of_recorder(), used()
count, began = 0, time.monotonic()
while time.monotonic() - began < SECONDS:
    for _ in range(100):
        dist.all_reduce(x)
    count += 100
cpu, wall = used() - cpu, time.monotonic() - began
recorder, watcher = cpu_of_recorder() - recorder, cpu_of(f"/proc/{os.getppid()}/stat") - watcher
print(json.dumps({"us": cpu / count * 1e6, "recorder_us": recorder / count * 1e6, "recorder": recorder / wall,
                  "count": count, "wall": wall, "watcher": watcher / wall}))
dist.destroy_process_group()
"""


def turn(watched: bool, folder: Path) -> dict[str, float]:
    """One run; CPU microseconds per collective."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environ = _watched.environment(
        RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCH_FR_BUFFER_SIZE="2000"
    )
    command = [sys.executable, "-c", RANK.replace("SECONDS", str(SECONDS))]
    if watched:
        command = [*_watched.command(folder), *command]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=True)
    return json.loads(done.stdout)


def spread(values: list[float]) -> str:
    ordered = sorted(values)
    low, high = _watched.interval(ordered)
    ends = f"from {ordered[0]:.2f} to {ordered[-1]:.2f}"
    return f"median {statistics.median(ordered):.2f} (95 %: {low:.2f} to {high:.2f}; {ends})"


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    on, off = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            on.append(turn(True, Path(folder) / str(number)))
            off.append(turn(False, Path(folder)))
    extra = [a["us"] - b["us"] for a, b in zip(on, off, strict=True)]
    recorder = statistics.median(each["recorder_us"] for each in on)
    watcher = statistics.median(each["watcher"] for each in on)
    print(f"watched      {spread([t['us'] for t in on])} us of CPU per collective")
    print(f"unwatched    {spread([t['us'] for t in off])} us of CPU per collective")
    print(f"difference   {spread(extra)} us, pair by pair (bar: {INSIDE_US})")
    print(f"recorder     {recorder:.3f} us per collective, {on[0]['recorder']:.3%} of a core, in a thread of its own")
    print(f"the watcher  {watcher:.2%} of a core (bar: {OUTSIDE_SHARE:.2%} per rank)")
    return 0 if statistics.median(extra) <= INSIDE_US and watcher <= OUTSIDE_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
