"""`collect` and `watch` beside a running job, and `collect` of one that nobody prepared."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from tests.command import run_forked
from tests.run import small, watched
from whichrank.evidence.bundle import load
from whichrank.evidence.collectors import tools
from whichrank.worker import network

pytestmark = pytest.mark.slow
NEEDS_TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def ask(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_forked([str(argument) for argument in arguments], watched.environment(), timeout=90)


@pytest.fixture(scope="module")
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A job that hangs, watched, and left alone."""
    out = tmp_path_factory.mktemp("stuck")
    launcher = watched.forked(watched.JOB, "stuck", world=4)
    command = watched.whichrank("run", "--out", out, "--quiet", "--", *launcher)
    job = subprocess.Popen(command, stdout=-3, stderr=-3, text=True, env=watched.environment())
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        history = out / "history.jsonl"
        rows = [json.loads(line) for line in history.read_text().splitlines()] if history.exists() else []
        if any(row["rank"] == 2 and row["place"].endswith("load_batch") for row in rows):
            break
        time.sleep(0.5)
    yield job, out
    job.send_signal(signal.SIGTERM)
    job.wait(60)


@NEEDS_TORCH
def test_a_bundle_of_a_watched_job(stuck: tuple[subprocess.Popen[str], Path], tmp_path: Path) -> None:
    job, _ = stuck
    done = ask("collect", job.pid, "--out", tmp_path / "bundle")
    assert done.returncode == 0, done.stderr
    files = {file["path"] for file in load(tmp_path / "bundle")["files"]}
    for rank in range(4):
        assert {f"dumps/rank_{rank}", f"stacks/rank_{rank}.txt", f"environment/rank_{rank}.env"} <= files
    told = json.loads(ask("diagnose", tmp_path / "bundle", "--format", "json", "--quiet").stdout)
    assert told["verdict"]["culprits"]["ranks"] == [2]


@NEEDS_TORCH
def test_a_look_at_it(stuck: tuple[subprocess.Popen[str], Path]) -> None:
    _, out = stuck
    done = ask("watch", out, "--once")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines[1:6]] == ["rank", "0", "1", "2", "3"]
    assert "load_batch" in done.stdout
    assert done.stdout.count("in all_reduce") == 3


def test_a_job_that_nobody_prepared(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "for r in range(2):\n"
        "    subprocess.Popen(['sleep', '60'], env={**os.environ, 'RANK': str(r), 'WORLD_SIZE': '2'})\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    job = subprocess.Popen(
        [sys.executable, "-c", code], stdout=-1, text=True, env=watched.environment(), start_new_session=True
    )
    try:
        assert job.stdout is not None
        job.stdout.readline()
        done = ask("collect", job.pid, "--out", tmp_path / "bundle")
        assert done.returncode == 0, done.stderr
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    content = load(tmp_path / "bundle")
    assert content["job"]["ranks_seen"] == [0, 1]
    assert {file["rank"] for file in content["files"] if file["kind"] == "process status"} == {0, 1}
    assert {"last words", "flight recorder", "stacks"} <= {entry["what"] for entry in content["missing"]}


TRAINS = f"""
import os, runpy
os.write(1, f"rank {{os.environ['RANK']}} trains\\n".encode())
runpy.run_path({str(small.JOB)!r}, run_name="__main__")
"""


@pytest.fixture(scope="module")
def unprepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[small.Small]:
    """A job by torchrun that nobody watches; its output goes to a file that both ranks share."""
    folder = tmp_path_factory.mktemp("unprepared")
    (folder / "train.py").write_text(TRAINS)
    with (folder / "job.log").open("w") as log:
        command = small.torchrun(folder, script=folder / "train.py")
        process = subprocess.Popen(command, stdout=log, stderr=log, text=True, env=watched.environment())
    job = small.Small(process, folder, folder / "out")
    job.until_ready()
    yield job
    assert job.end() == 0, (folder / "job.log").read_text()
    assert job.unharmed


@NEEDS_TORCH
def test_what_there_is_of_a_job_by_torchrun_that_nobody_prepared(unprepared: small.Small) -> None:
    bundle = unprepared.folder / "bundle"
    done = ask("collect", unprepared.process.pid, "--out", bundle)
    assert done.returncode == 0, done.stderr
    content = load(bundle)
    jsonschema.Draft202012Validator(json.loads((watched.SCHEMAS / "manifest.schema.json").read_text())).validate(
        content
    )
    files = {file["path"]: file for file in content["files"]}
    assert "rank 1 trains" in (bundle / "logs/output_1.log").read_text()
    assert {f"host/sockets.rank_{rank}.txt" for rank in (0, 1)} <= set(files)
    assert f"host/net.{network.namespace()}.txt" in files
    if tools.py_spy() is not None:
        assert files["stacks/rank_1.txt"]["note"] == "py-spy"
    assert unprepared.process.poll() is None, "the job goes on"


@NEEDS_TORCH
def test_attach_ends_with_a_key(unprepared: small.Small) -> None:
    command = watched.whichrank("attach", unprepared.process.pid, "--no-history", "--out", unprepared.out)
    watcher = subprocess.Popen(command, stdout=-3, stderr=-1, text=True, env=watched.environment())
    unprepared.until("it watches", (unprepared.out / "run.json").exists)
    watcher.send_signal(signal.SIGINT)
    _, told = watcher.communicate(timeout=120)
    assert "Traceback" not in told
    assert unprepared.process.poll() is None, "the job goes on"


def test_no_such_process(tmp_path: Path) -> None:
    done = ask("collect", 2**22 - 1, "--out", tmp_path / "bundle")
    assert done.returncode == 2
    assert "there is no process" in done.stderr


def test_attach_needs_a_job(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        done = ask("attach", other.pid, "--out", tmp_path)
    finally:
        other.kill()
        other.wait()
    assert done.returncode == 2
    assert "has no ranks below it" in done.stderr


@NEEDS_TORCH
def test_a_second_watcher(stuck: tuple[subprocess.Popen[str], Path], tmp_path: Path) -> None:
    """As after the first one was killed: the words are there, and so is the hang."""
    job, _ = stuck
    command = watched.whichrank("attach", job.pid, "--out", tmp_path)
    second = subprocess.Popen(command, stdout=-3, stderr=-3, env=watched.environment())
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (tmp_path / "verdict.json").exists():
            time.sleep(0.2)
    finally:
        second.kill()
        second.wait()
    assert json.loads((tmp_path / "verdict.json").read_text())["verdict"]["culprits"]["ranks"] == [2]
    assert job.poll() is None, "the job goes on"
