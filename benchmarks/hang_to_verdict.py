"""Seconds from the moment a job stops making progress to its verdict: real jobs of four ranks under `whichrank run`.

Six kinds of hang in steady state: a rank that sleeps, is stopped, holds the interpreter, skips a collective, waits for
a lock, or goes round in a loop. Medians and worst of each kind and of all, and where the seconds went.

    python benchmarks/hang_to_verdict.py                     one run of each kind
    python benchmarks/hang_to_verdict.py 20 --results FILE --seconds 500
    python benchmarks/hang_to_verdict.py 20 --results FILE --seconds 500 --side-by-side 8
    python benchmarks/hang_to_verdict.py 20 --results FILE --cores 2,3 --kinds spin
    python benchmarks/hang_to_verdict.py 20 --kinds gil --keep FOLDER      evidence of the runs with a wrong answer

Needs numpy, msgspec and torch; whichrank itself need not be installed. With --results every run is a line of JSON, and
a later call makes the runs that are missing, so that 20 of each (an hour on two cores) can be made in pieces.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import _watched  # noqa: E402

JOB = _watched.ROOT / "tests" / "run" / "job.py"
MEDIAN_S, WORST_S = 10.0, 20.0
EACH = 1
CULPRIT = 2
LIMIT_S = 150.0
"""For a job and its verdict."""
KINDS = {
    "stuck": {"rank-stuck-in-user-code", "rank-stuck-in-data-loading"},
    "stop": {"rank-frozen"},
    "gil": {"rank-stuck-in-user-code"},
    "skip": {"conditional-collective", "collective-desync"},
    "lock": {"rank-stuck-in-user-code"},
    "spin": {"rank-stuck-in-user-code"},
}
"""A kind of hang, and the causes that are right for it."""


@dataclass(frozen=True)
class Run:
    """One job. Seconds since its rank went astray, at each stage; None where it was not reached."""

    kind: str
    cause: str
    ranks: list[int]
    suspected_s: float | None = None
    confirmed_s: float | None = None
    evidence_s: float | None = None
    """When all evidence was taken."""
    verdict_s: float | None = None
    cores: list[int] = field(default_factory=list)
    load: float = 0.0
    machine: str = platform.machine()

    @property
    def total_s(self) -> float:
        return float("inf") if self.verdict_s is None else self.verdict_s

    @property
    def right(self) -> bool:
        return self.cause in KINDS[self.kind] and self.ranks == [CULPRIT]

    def __str__(self) -> str:
        stages = ("suspected", "confirmed", "evidence", "verdict")
        times = [getattr(self, f"{stage}_s") for stage in stages]
        shown = ", ".join(
            f"{stage} {'never' if at is None else f'{at:.1f} s'}" for stage, at in zip(stages, times, strict=True)
        )
        right = "right" if self.right else "WRONG"
        return f"{self.kind:6} {shown}; {right}: {self.cause} {self.ranks} (cores {self.cores}, load {self.load:.1f})"


def one(kind: str, folder: Path) -> Run:
    """Start a job, wait until it hangs and was judged, and end it."""
    job = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "4", "--master_port", str(free_port())]
    with (folder.parent / f"{folder.name}.log").open("wb") as log:
        watched = subprocess.Popen(
            [*_watched.command(folder), *job, str(JOB), kind],
            env=_watched.environment(HANG_MOMENT=str(moment(folder))), stdout=log, stderr=log,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + LIMIT_S
            while watched.poll() is None and not judged(folder) and time.monotonic() < deadline:
                time.sleep(0.5)
        finally:
            _watched.end(watched)
    return read(kind, folder)


def judged(folder: Path) -> bool:
    try:
        alarms = json.loads((folder / "run.json").read_text())["alarms"]
    except (OSError, ValueError):
        return False
    return any("verdict" in alarm for alarm in alarms)


def moment(folder: Path) -> Path:
    """Where the job says when it began to hang."""
    return folder.parent / f"{folder.name}.moment"


def free_port() -> int:
    """Below the range that the kernel gives out, and apart from those of instances on other cores."""
    first = 21_000 + 100 * (min(os.sched_getaffinity(0)) % 80)
    for port in range(first + os.getpid() % 50, first + 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port from {first} on")


def read(kind: str, folder: Path) -> Run:
    if not (folder / "run.json").exists():
        return Run(kind, "the job was not watched", [])
    state = json.loads((folder / "run.json").read_text())
    alarms = {alarm["level"]: alarm for alarm in state["alarms"]}
    told = folder / "verdict.json"
    verdict = json.loads(told.read_text())["verdict"] if told.exists() else None
    cores, load = sorted(os.sched_getaffinity(0)), os.getloadavg()[0]
    if "suspect" not in alarms:
        return Run(kind, f"no alarm; code {state.get('exit_code')}", [], cores=cores, load=load)
    began = float(moment(folder).read_text())

    def since(level: str, moment: str) -> float | None:
        at = alarms.get(level, {}).get(moment)
        return None if at is None else round(_seconds(at) - began, 2)

    return Run(
        kind, verdict["cause"] if verdict else "no verdict", verdict["culprits"]["ranks"] if verdict else [],
        since("suspect", "time"), since("confirmed", "time"), since("confirmed", "evidence"),
        since("confirmed", "verdict"), cores, load,
    )  # fmt: skip


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def missing(each: int, kinds: list[str], runs: list[Run]) -> Iterator[str]:
    """Kinds to run next, in turns."""
    counts = Counter(run.kind for run in runs)
    for number in range(each):
        yield from (kind for kind in kinds if counts[kind] <= number)


def here(kinds: list[str], given: argparse.Namespace) -> list[Run]:
    """One job after the other, on the cores of this process."""
    began, runs = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="hang-") as folder:
        for number, kind in enumerate(kinds):
            if time.monotonic() - began > given.seconds:
                break
            run = one(kind, Path(folder) / str(number))
            runs.append(run)
            if given.keep is not None and not run.right:
                kept = given.keep / f"{kind}-{time.time_ns()}"
                shutil.copytree(Path(folder) / str(number), kept, ignore=shutil.ignore_patterns("*.ask"))
            print(run, flush=True)
            if given.results is not None:
                with given.results.open("a") as stream:  # one short write: whole lines, whoever else writes
                    stream.write(json.dumps(asdict(run)) + "\n")
    return runs


def side_by_side(kinds: list[str], given: argparse.Namespace) -> list[Run]:
    """Several at the same time, each on two cores of its own."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2 * given.side_by_side:
        raise SystemExit(f"{given.side_by_side} jobs need {2 * given.side_by_side} cores; there are {len(cores)}")
    waiting, lock, runs, began = list(kinds), threading.Lock(), list[Run](), time.monotonic()

    def instance(pair: list[int]) -> None:
        while True:
            with lock:
                if not waiting or time.monotonic() - began > given.seconds:
                    return
                kind = waiting.pop(0)
            with tempfile.TemporaryDirectory() as folder:
                kept = Path(folder) / "run.jsonl"
                words = ["1", "--kinds", kind, "--cores", ",".join(map(str, pair)), "--results", str(kept)]
                words += ["--keep", str(given.keep)] if given.keep is not None else []
                subprocess.run([sys.executable, __file__, *words], stdout=subprocess.DEVNULL, check=False)
                for run in read_runs(kept):
                    with lock:
                        runs.append(run)
                        print(run, flush=True)
                        if given.results is not None:
                            with given.results.open("a") as stream:
                                stream.write(json.dumps(asdict(run)) + "\n")

    pairs = [cores[2 * number : 2 * number + 2] for number in range(given.side_by_side)]
    threads = [threading.Thread(target=instance, args=(pair,)) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return runs


def read_runs(path: Path | None) -> list[Run]:
    if path is None or not path.exists():
        return []
    return [Run(**json.loads(line)) for line in path.read_text().splitlines()]


def spread(name: str, values: list[float]) -> str:
    return f"{name:8} median {statistics.median(values):5.1f} s, worst {max(values):5.1f} s"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("each", type=int, nargs="?", default=EACH, help="runs of each kind")
    parser.add_argument("--results", type=Path, help="where runs are kept, and found again")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no other run after this time")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"some of {','.join(KINDS)}")
    parser.add_argument("--cores", help="run on these cores alone, for instance 0,1")
    parser.add_argument("--keep", type=Path, help="where the evidence of runs with a wrong answer goes")
    parser.add_argument("--side-by-side", type=int, default=1, metavar="N", help="N jobs at once, on two cores each")
    given = parser.parse_args()
    given.kinds = given.kinds.split(",")
    if unknown := set(given.kinds) - set(KINDS):
        parser.error(f"unknown kinds: {', '.join(sorted(unknown))}")
    return given


def main() -> int:
    given = arguments()
    if given.cores:
        os.sched_setaffinity(0, {int(core) for core in given.cores.split(",")})
    runs = read_runs(given.results)
    kinds = list(missing(given.each, given.kinds, runs))
    runs += side_by_side(kinds, given) if given.side_by_side > 1 else here(kinds, given)
    if not runs:
        return 1
    for kind in KINDS:
        if values := [run.total_s for run in runs if run.kind == kind]:
            print(spread(kind, values), f"from the hang to its verdict ({len(values)} runs)")
    totals = [run.total_s for run in runs]
    right = sum(run.right for run in runs)
    print(spread("all", totals), f"(wanted: {MEDIAN_S:.0f} and {WORST_S:.0f}; {len(runs)} runs)")
    print(f"right cause and rank: {right} of {len(runs)}")
    return 0 if statistics.median(totals) <= MEDIAN_S and max(totals) <= WORST_S and right == len(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
