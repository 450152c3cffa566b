"""nccl-tests: their output read, or their programs run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from whichrank.evidence import nccl_tests
from whichrank.model.errors import UnreadableError, UsageError
from whichrank.records.bench import BenchRun

if TYPE_CHECKING:
    from whichrank.flows.bench.measure import Plan

_PROGRAMS = {
    "all_reduce": "all_reduce_perf", "all_gather": "all_gather_perf", "reduce_scatter": "reduce_scatter_perf",
    "broadcast": "broadcast_perf", "all_to_all": "alltoall_perf", "send_recv": "sendrecv_perf",
}  # fmt: skip
_PLACES = ("~/nccl-tests/build", "/opt/nccl-tests/build", "/opt/nccl_tests/build", "/usr/local/nccl-tests/build",
           "/usr/local/bin")  # fmt: skip


def read(files: Sequence[Path], device: str = "") -> BenchRun:
    """All files as one run; the machine is the one that the first of them names."""
    runs = []
    for file in files:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise UnreadableError(f"can't read {file}: {error.strerror}") from error
        runs.append(nccl_tests.read(data, str(file), device))
    return joined(runs)


def joined(runs: Sequence[BenchRun]) -> BenchRun:
    first = next((run for run in runs if run.device), runs[0])
    return replace(first, results=[result for run in runs for result in run.results])


def folder(given: str) -> Path:
    """The one that was given, or the first of the usual places that has the programs."""
    if given:
        if not Path(given).is_dir():
            raise UsageError(f"no such folder: {given}", "Give the folder build/ of nccl-tests.")
        return Path(given)
    on_path = shutil.which(_PROGRAMS["all_reduce"])
    places = [Path(on_path).parent] if on_path else [Path(place).expanduser() for place in _PLACES]
    found = next((place for place in places if (place / _PROGRAMS["all_reduce"]).is_file()), None)
    if found is None:
        raise UsageError("nccl-tests is not installed here", "Build it, and give its folder: --nccl-tests DIR/build")
    return found


def drive(folder: Path, plan: Plan) -> BenchRun:
    """Run the programs of a build on the GPUs of this host."""
    runs, failures = [], {}
    for name in plan.collectives:
        program = folder / _PROGRAMS.get(name, "")
        if name not in _PROGRAMS:
            continue
        if not program.is_file():
            failures[name] = f"{program} is not there"
            continue
        try:
            with tempfile.TemporaryDirectory() as place:
                said = _ran(program, plan, Path(place) / "results.json")
            runs.append(nccl_tests.read(said, str(program)))
        except UnreadableError as error:
            failures[name] = error.message
    if not runs:
        raise UsageError(f"no program of nccl-tests in {folder} gave results: {failures}", "Give the folder build/.")
    return replace(joined(runs), failures=failures, origin="nccl-tests")


def _ran(program: Path, plan: Plan, report: Path) -> bytes:
    """What it printed; its JSON where this version writes one."""
    words = [
        str(program), "-b", str(min(plan.sizes)), "-e", str(max(plan.sizes)), "-f", "4", "-g", str(plan.ranks_per_host),
        "-c", "1",
    ]  # fmt: skip
    for command in ([*words, "-J", str(report)], words):
        code, said = _bounded(command, plan.limits.whole_s)
        if report.is_file():
            return report.read_bytes()
        if code == 0:
            break
    return said  # an exit code other than 0 may mean wrong results: the table says


def _bounded(command: list[str], limit_s: float) -> tuple[int, bytes]:
    """Exit code and output; a program that does not end costs its limit, even if a driver keeps it alive."""
    program = Path(command[0]).name
    try:
        child = subprocess.Popen(  # noqa: S603 - a program of nccl-tests, no shell
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        raise UnreadableError(f"{program} can't be started: {error.strerror}") from error
    try:
        said, _ = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        raise UnreadableError(f"{program} did not end within {limit_s:.0f} s") from None
    return child.returncode, said
