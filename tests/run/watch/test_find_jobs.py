"""Which job is meant: by its launcher, by a rank, by a shell above, or by nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.run import watched
from whichrank.model.errors import UsageError
from whichrank.run.watch import find_jobs, private

# A launcher: two ranks that sleep, and a child of one of them.
LAUNCHER = """
import os, subprocess, sys
def rank(n, *command):
    environ = {**os.environ, "RANK": str(n), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[1]}
    return subprocess.Popen(command, env=environ)
ranks = [rank(0, "sh", "-c", "sleep 60; true"), rank(1, "sleep", "60")]
print(os.getpid(), *(r.pid for r in ranks), flush=True)
for each in ranks:
    each.wait()
"""


def end(ranks: list[int]) -> None:
    for pid in ranks:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            os.kill(each, signal.SIGKILL)


@dataclass
class Shell:
    """A shell with two jobs below it: launcher, first and second rank of each."""

    process: subprocess.Popen[str]
    jobs: list[list[int]]


@pytest.fixture
def shell() -> Iterator[Shell]:
    code = f'{sys.executable} -c "$0" 29501 & {sys.executable} -c "$0" 29502 & wait'
    process = subprocess.Popen(["bash", "-c", code, LAUNCHER], stdout=-1, text=True, env=watched.environment())
    assert process.stdout is not None
    found = Shell(process, [list(map(int, process.stdout.readline().split())) for _ in range(2)])
    yield found
    for _, *ranks in found.jobs:
        end(ranks)
    process.wait(20)


def attach(*words: object, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        watched.whichrank("attach", *words), capture_output=True, text=True, timeout=60,
        env=watched.environment(**environ), check=False,
    )  # fmt: skip


def test_an_ambiguous_target_ends_at_once_with_the_candidates(shell: Shell) -> None:
    done = attach(shell.process.pid)
    assert done.returncode == 2, done.stderr
    assert f"2 jobs run below process {shell.process.pid}" in done.stderr
    for launcher, *_ in shell.jobs:
        assert f"{launcher}  2 ranks  " in done.stderr


def test_a_launcher_a_rank_and_a_child_of_a_rank_mean_one_job(shell: Shell) -> None:
    (launcher, first, second), _ = shell.jobs
    below = int(Path(f"/proc/{first}/task/{first}/children").read_text().split()[0])
    for pid in (launcher, first, second, below):
        job = find_jobs.the_job(pid)
        assert job is not None
        assert (job.launcher, job.ranks) == (launcher, (first, second)), "the sleeping child of a rank is none"
    with pytest.raises(UsageError, match="2 jobs run below"):
        find_jobs.the_job(shell.process.pid)


def test_nothing_there(tmp_path: Path) -> None:
    idle = subprocess.Popen(["sleep", "30"])
    try:
        done = attach(idle.pid, "--out", tmp_path / "out")
        assert done.returncode == 2
        assert "has no ranks below it" in done.stderr
        assert not (tmp_path / "out").exists()
    finally:
        idle.kill()
        idle.wait()


def test_attach_beside_run_works_and_watch_finds_the_first(tmp_path: Path) -> None:
    line = watched.whichrank(
        "run", "--no-history", "--out", tmp_path / "out", "--", sys.executable, "-c", LAUNCHER, "1"
    )
    environ = watched.environment(TMPDIR=str(tmp_path))
    job = subprocess.Popen(line, stdout=-1, text=True, env=environ)
    assert job.stdout is not None
    launcher, *ranks = map(int, job.stdout.readline().split())
    try:
        deadline = time.monotonic() + 20
        while not any(private.results_of(folder) for folder in tmp_path.glob("whichrank-*")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with (tmp_path / "second").open("w") as errors:
            second = subprocess.Popen(watched.whichrank("attach", launcher, "--no-history"), stderr=errors, env=environ)
        told = (tmp_path / "second").read_text
        while "watching the job of process" not in told():
            assert time.monotonic() < deadline + 30
            time.sleep(0.05)
        assert f"process {job.pid} watches this job too; to look on only: whichrank watch {tmp_path / 'out'}" in told()
        seen = subprocess.run(watched.whichrank("watch"), capture_output=True, text=True, env=environ, check=False)
        # Somebody else may watch a job on this host, too.
        assert "no alarm so far" in seen.stdout or f"whichrank watch {tmp_path / 'out'}" in seen.stderr
    finally:
        end(ranks)
        job.wait(60)
        second.wait(60)
    assert tmp_path / "out" not in find_jobs.watched().values()


def test_watch_for_an_attached_job(tmp_path: Path) -> None:
    environ = watched.environment(TMPDIR=str(tmp_path), COLUMNS="60")
    job = subprocess.Popen([sys.executable, "-c", LAUNCHER, "1"], stdout=-1, text=True, env=environ)
    assert job.stdout is not None
    launcher, *ranks = map(int, job.stdout.readline().split())
    watcher = subprocess.Popen(
        watched.whichrank("attach", launcher, "--no-history", "--out", tmp_path / "out"), stderr=-3, env=environ
    )
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "out" / "run.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        seen = subprocess.run(
            watched.whichrank("watch", tmp_path / "out", "--interval", "2"),
            capture_output=True,
            text=True,
            env=environ,
            check=False,
        )
        assert seen.returncode == 0, seen.stderr
        assert all(len(line) <= 60 for line in seen.stdout.splitlines()), seen.stdout
        lines = [line.split() for line in seen.stdout.splitlines()]
        assert [line[0] for line in lines if line and line[0] in ("0", "1")] == ["0", "1"], seen.stdout
        assert "idle" in seen.stdout
    finally:
        end(ranks)
        job.wait(20)
        assert watcher.wait(60) == 0
    assert not list(tmp_path.glob("whichrank-*")), "nothing is left of the watch"


# A rank that sets a process free: that one is below init, and has the rank's environment.
FREED = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(1, b"%d\\n" % os.getpid())  # whole lines: both write at once
        time.sleep(40)
    os._exit(0)
os.wait()
os.write(1, b"%d\\n" % os.getpid())
time.sleep(40)
"""
DAEMON = """
import os, subprocess, sys
environ = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29503"}
subprocess.Popen([sys.executable, "-c", sys.argv[1]], env=environ).wait()
"""


def test_what_a_rank_has_set_free_is_no_rank() -> None:
    launcher = subprocess.Popen([sys.executable, "-c", DAEMON, FREED], stdout=-1, text=True, env=watched.environment())
    assert launcher.stdout is not None
    told = {int(launcher.stdout.readline()) for _ in range(2)}
    try:
        ranks = [pid for job in find_jobs.jobs() for pid in job.ranks if pid in told]
        assert [find_jobs.processes.everybody()[pid].parent for pid in ranks] == [launcher.pid]
    finally:
        for pid in told:
            os.kill(pid, signal.SIGKILL)
        launcher.wait(20)
