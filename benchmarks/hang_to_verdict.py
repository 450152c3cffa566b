"""How long after a hang it is suspected, and how long after that the verdict is there: real jobs of four ranks.

A rank that sleeps, is stopped, holds the interpreter, skips a collective, waits for a lock, or goes round in a loop; in
steady state. Medians and worst of each kind and of all.

python benchmarks/hang_to_verdict.py [RUNS OF EACH KIND] [--results FILE] [--seconds S]

20 runs of each kind take an hour. With --results they may be made in pieces: each call goes on where the one before has
stopped, which is after S seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

MEDIAN_S, WORST_S = 10.0, 20.0
EACH = 1
CULPRIT = 2
LIMIT_S = 180.0
JOB = Path(__file__).parent.parent / "tests" / "run" / "job.py"
FAULTS = {
    "stuck": {"rank-stuck-in-user-code", "rank-stuck-in-data-loading"},
    "stop": {"rank-frozen"},
    "gil": {"rank-stuck-in-user-code"},
    "skip": {"conditional-collective", "collective-desync"},
    "lock": {"rank-stuck-in-user-code"},
    "spin": {"rank-stuck-in-user-code"},
}
"""A fault, and the causes that are right for it."""


@dataclass(frozen=True)
class Run:
    """One job."""

    fault: str
    suspect_s: float
    verdict_s: float
    cause: str
    ranks: list[int]

    @property
    def total_s(self) -> float:
        return self.suspect_s + self.verdict_s

    @property
    def right(self) -> bool:
        return self.cause in FAULTS[self.fault] and self.ranks == [CULPRIT]


def one(fault: str, folder: Path) -> Run:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH_", "NCCL_", "GLOO_"))}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "4", "--master_port", str(port)]
    watched = subprocess.Popen(
        [sys.executable, "-m", "whichrank", "run", "--no-history", "--out", str(folder), "--policy", "end", "--",
         *job, str(JOB), fault],
        env={**environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        watched.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        watched.send_signal(signal.SIGTERM)
        watched.wait(60)
    return read(fault, folder)


def read(fault: str, folder: Path) -> Run:
    state = json.loads((folder / "run.json").read_text())
    alarms = {alarm["level"]: alarm for alarm in state["alarms"]}
    told = folder / "verdict.json"
    verdict = json.loads(told.read_text())["verdict"] if told.exists() else None
    if verdict is None or "verdict" not in alarms.get("confirmed", {}):
        seen = ", ".join(f"{level} after {alarm['silence_s']} s" for level, alarm in alarms.items()) or "no alarm"
        ended = f"{seen}; {verdict['summary'] if verdict else 'no verdict'}; code {state.get('exit_code')}"
        return Run(fault, float("inf"), float("inf"), ended, [])
    suspected = datetime.fromisoformat(alarms["suspect"]["time"].replace("Z", "+00:00"))
    judged = datetime.fromisoformat(alarms["confirmed"]["verdict"].replace("Z", "+00:00"))
    later = (judged - suspected).total_seconds()
    return Run(fault, alarms["suspect"]["silence_s"], later, verdict["cause"], verdict["culprits"]["ranks"])


def told(name: str, values: list[float]) -> str:
    return f"{name:8} median {statistics.median(values):5.1f} s, worst {max(values):5.1f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("each", type=int, nargs="?", default=EACH)
    parser.add_argument("--results", type=Path, help="where runs are kept, and found again")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no other run after this time")
    given = parser.parse_args()
    began, runs = time.monotonic(), kept(given.results)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(len(runs), given.each * len(FAULTS)):
            if time.monotonic() - began > given.seconds:
                break
            run = one(list(FAULTS)[number % len(FAULTS)], Path(folder) / str(number))
            runs.append(run)
            show(run)
            if given.results is not None:
                with given.results.open("a") as stream:
                    print(json.dumps(asdict(run)), file=stream)
            time.sleep(1)
    for fault in FAULTS:
        if values := [run.total_s for run in runs if run.fault == fault]:
            print(told(fault, values), f"from the hang to its verdict ({len(values)} runs)")
    totals = [run.total_s for run in runs]
    right = sum(run.right for run in runs)
    print(told("all", totals), f"(wanted: {MEDIAN_S:.0f} and {WORST_S:.0f})")
    print(f"right cause and rank: {right} of {len(runs)}")
    return 0 if statistics.median(totals) <= MEDIAN_S and max(totals) <= WORST_S and right == len(runs) else 1


def kept(results: Path | None) -> list[Run]:
    if results is None or not results.exists():
        return []
    return [Run(**json.loads(line)) for line in results.read_text().splitlines()]


def show(run: Run) -> None:
    right = "right" if run.right else "WRONG"
    print(f"{run.fault:6} suspect {run.suspect_s:5.1f} s, verdict {run.verdict_s:5.1f} s later, {right}: ", end="")
    print(f"{run.cause} {run.ranks}  (load {os.getloadavg()[0]:.1f})", flush=True)


if __name__ == "__main__":
    sys.exit(main())
