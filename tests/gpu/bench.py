"""On a machine with one real GPU: bench over NCCL with ranks that share the GPU, and sweeps.

    python tests/gpu/bench.py --part bench       one part: bench, four, plants, sweep, none; ≤ 90 s each
    python tests/gpu/bench.py --part sweep --seconds 150    a part with more time: ten runs of the job prove a gain
    python tests/gpu/bench.py --list             their names
    python tests/gpu/bench.py                    all of them, one after the other

Prints one JSON document; progress with times goes to stderr. Nothing waits forever: every command has a limit, and is
ended with all that it started.

Ranks share the GPU because each has a NCCL_HOSTID of its own; their traffic goes over sockets of this machine, and the
GPU switches between their kernels: the bandwidths say nothing about NVLink.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

SRC = str(Path(__file__).resolve().parents[2] / "src")
sys.path.insert(0, SRC)
ENV = {**os.environ, "PYTHONPATH": SRC}
PART_S = 85.0
"""For each part."""


def say(words: str) -> None:
    sys.stderr.write(f"[{time.monotonic() - BEGAN:6.1f} s] {words}\n")
    sys.stderr.flush()


BEGAN = time.monotonic()


class Clock:
    """The time of one part."""

    def __init__(self, limit_s: float) -> None:
        self.end = time.monotonic() + limit_s

    @property
    def left(self) -> float:
        return max(0.0, self.end - time.monotonic())


def ended(processes: Sequence[subprocess.Popen], limit_s: float) -> bool:
    """Whether all of them end by themselves within the limit; their whole sessions are ended anyway."""
    deadline, good = time.monotonic() + limit_s, True
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            good = False
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(3)
    return good


def run(commands: Sequence[Sequence[str]], limit_s: float, envs: Sequence[Mapping[str, str]] = ({},)) -> list[dict]:
    """Commands at the same time, with files instead of pipes: nobody can keep us waiting by holding one open."""
    with tempfile.TemporaryDirectory() as place:
        files = [(Path(place) / f"{n}.out", Path(place) / f"{n}.err") for n in range(len(commands))]
        began = time.monotonic()
        processes = [
            subprocess.Popen(
                list(words), stdin=subprocess.DEVNULL, stdout=out.open("wb"), stderr=err.open("wb"),
                env={**ENV, **env}, start_new_session=True,
            )
            for words, (out, err), env in zip(commands, files, envs, strict=True)
        ]  # fmt: skip
        good = ended(processes, limit_s)
        seconds = round(time.monotonic() - began, 1)
        return [
            {"rc": process.returncode, "seconds": seconds, "timed_out": not good,
             "stdout": out.read_text("utf-8", "replace"), "stderr": err.read_text("utf-8", "replace")[-1200:]}
            for process, (out, err) in zip(processes, files, strict=True)
        ]  # fmt: skip


def command(clock: Clock, limit_s: float, *words: str) -> dict:
    (done,) = run([[sys.executable, "-m", "whichrank", *words]], min(limit_s, max(1.0, clock.left)))
    said = done.pop("stdout")
    try:
        done["document"] = json.loads(said)
    except ValueError:
        done["document"] = said[-2000:]
    say(f"whichrank {' '.join(words[:4])} …: code {done['rc']} after {done['seconds']} s")
    return done


BENCH = ("bench", "--backend", "nccl", "--seconds", "0.2", "--format", "json")


def bench(clock: Clock) -> dict:
    """Two ranks on the one GPU, every collective."""
    words = ("--nproc-per-node", "2", "--sizes", "1M,16M", "--stragglers", "--limit", "70")
    return command(clock, 84, *BENCH, *words)


def four(clock: Clock) -> dict:
    words = ("--nproc-per-node", "4", "--sizes", "4M", "--collective", "all_reduce", "--limit", "60")
    return command(clock, 75, *BENCH, *words)


PLANTS = [
    {"NCCL_PROTO": "LL"}, {"NCCL_MAX_NCHANNELS": "1"}, {"NCCL_BUFFSIZE": str(1 << 20)},
    {"NCCL_BUFFSIZE": str(256 << 10)}, {"NCCL_NTHREADS": "64"},
]  # fmt: skip
SWEPT = 16 << 20


def _runner(budget_s: float):
    from whichrank.fleet.engines import here
    from whichrank.flows.bench.job import Limits
    from whichrank.flows.bench.measure import Plan
    from whichrank.flows.bench.sweep import runner

    plan = Plan(("all_reduce",), (SWEPT,), "nccl", "float32", 0.2, 2, limits=Limits(40, 35, 25))
    return runner(here.engine(), plan, sys.executable, budget_s)


def plants(clock: Clock) -> dict:
    """How fast the job is by default and with settings that should slow it: what can be planted here."""
    measured = _runner(clock.left)
    found = {}
    for settings in [{}, *PLANTS, {}]:
        name = " ".join(f"{k}={v}" for k, v in settings.items()) or "defaults"
        if clock.left < 15:
            break
        began = time.monotonic()
        try:
            found.setdefault(name, []).append(round(measured(settings), 4))
        except Exception as error:  # noqa: BLE001 - settings may fail
            found.setdefault(name, []).append(str(error)[:200])
        say(f"{name}: {found[name][-1]} after {time.monotonic() - began:.1f} s")
    return found


def sweep(clock: Clock) -> dict:
    """A planted advantage: the environment carries what slows the job, and one candidate takes it back."""
    usual = _runner(30)({})
    for planted in PLANTS:
        with _environment(planted):
            slow = _runner(30)({})
        say(f"defaults {usual:.3f} GB/s, with {planted} {slow:.3f} GB/s")
        if usual > 1.25 * slow:
            cure = {name: _CURES[name] for name in planted}
            with _environment(planted):
                return {"planted": planted, "advantage": usual / slow - 1, **_swept([cure], clock.left)}
        if clock.left < 55:
            break
    return {"skipped": "no setting slowed this job by a fifth"}


_CURES = {
    "NCCL_PROTO": "Simple", "NCCL_MAX_NCHANNELS": "32", "NCCL_BUFFSIZE": str(4 << 20), "NCCL_NTHREADS": "512",
}  # fmt: skip


def none(clock: Clock) -> dict:
    """No advantage: NCCL's own buffer size, said aloud."""
    return _swept([{"NCCL_BUFFSIZE": str(4 << 20)}], clock.left)


def _swept(candidates: list[dict[str, str]], budget_s: float) -> dict:
    from whichrank.flows.bench.sweep import sweep as flow

    told = flow(_runner(budget_s), candidates, budget_s, say)
    return {
        "winner": dict(told.winner), "gain": told.gain, "noise": told.noise, "reason": told.reason,
        "seconds": round(told.seconds, 1), "runs": [list(t.speeds) for t in told.trials],
        "rematch": [list(t.speeds) for t in told.rematch] if told.rematch else None,
    }  # fmt: skip


class _environment:  # noqa: N801 - reads as a statement
    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings

    def __enter__(self) -> None:
        os.environ.update(self.settings)

    def __exit__(self, *_: object) -> None:
        for name in self.settings:
            os.environ.pop(name, None)


PARTS = {"bench": bench, "four": four, "plants": plants, "sweep": sweep, "none": none}


def main() -> int:
    words = sys.argv[1:]
    if "--list" in words:
        sys.stdout.write("\n".join(PARTS) + "\n")
        return 0
    wanted = [words[n + 1] for n, word in enumerate(words[:-1]) if word == "--part"] or list(PARTS)
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        sys.stderr.write(f"no part {unknown[0]}: {', '.join(PARTS)}\n")
        return 2
    seconds = float(words[words.index("--seconds") + 1]) if "--seconds" in words else PART_S
    report: dict = {}
    for name in wanted:
        began = time.monotonic()
        say(f"part {name}")
        try:
            report[name] = PARTS[name](Clock(seconds))
        except Exception as error:  # noqa: BLE001 - the other parts still count
            report[name] = f"{type(error).__name__}: {error}"[:500]
        report[f"{name}_s"] = round(time.monotonic() - began, 1)
        say(f"part {name} took {report[f'{name}_s']} s")
    report["seconds"] = round(time.monotonic() - BEGAN, 1)
    json.dump(report, sys.stdout, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
