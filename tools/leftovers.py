"""Drill a hundred times, interrupt ten of them at random, and look what is left on this machine: nothing may be.

    python tools/leftovers.py [--drills 100] [--interrupted 10] [--jobs 2] [--seed 1]

Processes, namespaces, mounts, shared memory, control groups, links, rules of the firewall, and folders for temporary
files are compared before and after. An interrupted drill gets SIGINT, SIGTERM or SIGKILL within its first quarter of
a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from whichrank.lab import catalogue
from whichrank.lab.place import PREFIX

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
SETTLE_S = 60.0
LIMIT_S = 600.0
MARKS = (b"WHICHRANK_PRIVATE=", b"WHICHRANK_DRILL", PREFIX.encode())


def standing() -> dict[str, set[str]]:
    """What a drill might leave, by kind."""
    temporary = Path(tempfile.gettempdir())
    return {
        "processes": set(ours()),
        "namespaces": names(Path("/run/netns"), "*") | names(Path("/etc/netns"), "*"),
        "mounts": {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()},
        "shared memory": names(Path("/dev/shm"), "*"),  # noqa: S108
        "control groups": names(Path("/sys/fs/cgroup"), f"**/{PREFIX}*"),
        "folders": names(temporary, "whichrank-*"),
        "links": said("ip", "-o", "link"),
        "queues": said("tc", "qdisc", "show"),
        "firewall": said("nft", "list", "ruleset"),
    }


def names(folder: Path, pattern: str) -> set[str]:
    return {str(path) for path in folder.glob(pattern)}


def said(*command: str) -> set[str]:
    try:
        return set(subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines())
    except FileNotFoundError:
        return set()


def ours() -> list[str]:
    """Processes that belong to a drill or to a watched job."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            told = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if state not in "ZX" and int(folder.name) != os.getpid() and any(mark in told for mark in MARKS):
            found.append(f"{folder.name} {(folder / 'cmdline').read_bytes()[:120]!r}")
    return found


def one(fault: str, seed: int, interrupt: tuple[float, signal.Signals] | None) -> str:
    """One drill in a process of its own: right, wrong, or interrupted."""
    drill = subprocess.Popen(
        [sys.executable, "-m", "whichrank", "drill", "run", fault, "--seed", str(seed), "--format", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    if interrupt is not None:
        time.sleep(interrupt[0])
        drill.send_signal(interrupt[1])
    printed, _ = drill.communicate(timeout=LIMIT_S)
    if interrupt is not None and drill.returncode not in (0, 1):
        told = f"interrupted by {interrupt[1].name} after {interrupt[0]:.0f} s"
    else:
        told = {0: "right", 1: "wrong"}.get(drill.returncode, f"code {drill.returncode}")
        if told == "wrong":
            told += f" {json.loads(printed).get('verdict')}"
    print(f"{fault} (seed {seed}): {told}", flush=True)
    return told.split()[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drills", type=int, default=100)
    parser.add_argument("--interrupted", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    dice = random.Random(asked.seed)  # noqa: S311
    possible = [catalogue.find(name) for name in catalogue.names()]
    faults = [fault.name for fault in possible if "gloo" in fault.backends and not fault.lacking()]
    dice.shuffle(faults)
    chosen = [faults[number % len(faults)] for number in range(asked.drills)]
    struck = set(dice.sample(range(asked.drills), asked.interrupted))
    plans = [(dice.uniform(0, 15), dice.choice(SIGNALS)) if number in struck else None for number in range(len(chosen))]
    before = standing()
    with ThreadPoolExecutor(asked.jobs) as pool:
        ended = Counter(pool.map(one, chosen, range(1000, 1000 + len(chosen)), plans))
    deadline = time.monotonic() + SETTLE_S
    while (left := remaining(before)) and time.monotonic() < deadline:
        time.sleep(2)
    print(", ".join(f"{count} {how}" for how, count in ended.most_common()))
    for kind, things in left.items():
        print(f"left of {kind}: {sorted(things)[:10]}")
    print("nothing is left" if not left else "NOT CLEAN")
    return 1 if left else 0


def remaining(before: dict[str, set[str]]) -> dict[str, set[str]]:
    return {kind: things - before[kind] for kind, things in standing().items() if things - before[kind]}


if __name__ == "__main__":
    sys.exit(main())
