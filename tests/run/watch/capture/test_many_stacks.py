"""`stacks` on 256 processes of a real job, native frames of 8, and processes that can't be asked."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.run.watched import environment, whichrank

JOB = Path(__file__).parents[2] / "many_ranks_job.py"
pytestmark = [pytest.mark.bars, pytest.mark.timeout(1500)]


@contextmanager
def job(world: int, *more: str) -> Iterator[int]:
    command = [sys.executable, str(JOB), str(world), *more]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(), text=True, start_new_session=True
    )
    try:
        assert process.stdout.readline().strip() == "ready"
        time.sleep(1)  # the ranks go from the marker into what they wait in
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)
        with suppress(ProcessLookupError):  # the child that waits for its pipe has outlived its parent
            os.killpg(process.pid, signal.SIGKILL)


def stacks(pid: int, *more: object) -> tuple[dict, float, float]:
    """What it said, and its seconds: of the clock, and of all cores together."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        whichrank("stacks", "--pid", pid, "--format", "json", *more),
        capture_output=True, text=True, timeout=600, env=environment(), check=False,
    )  # fmt: skip
    after, took = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert done.stdout, done.stderr
    return json.loads(done.stdout), took, used


def at(tree: list[dict], function: str) -> int:
    """How many processes are in a function; forked ranks are known by their pids."""
    return sum(
        len(node["ranks"]) + len(node["pids"])
        if node["frame"]["function"] == function
        else at(node["children"], function)
        for node in tree
    )


def files(tree: list[dict]) -> set[str]:
    return {node["frame"]["file"] for node in tree} | {file for node in tree for file in files(node["children"])}


def test_256_processes(record_property) -> None:
    with job(256) as pid:
        told, took, used = stacks(pid, "--timeout", 60)
    record_property("seconds", round(took, 1))
    print(f"256 stacks: {took:.1f} s, {used:.1f} s of CPU")  # noqa: T201 - the figure of the bar
    assert told["missing"] == []
    assert at(told["tree"], "fetch_shard") == 32
    assert at(told["tree"], "all_reduce") == 224
    assert used < 20  # ten seconds of two cores


def test_native_frames_of_8() -> None:
    with job(8) as pid:
        told, took, used = stacks(pid, "--native", "--timeout", 60)
    print(f"8 native stacks: {took:.1f} s, {used:.1f} s of CPU")  # noqa: T201
    assert told["missing"] == []
    assert {file for file in files(told["tree"]) if not file.endswith(".py")}, told
    assert used < 20


def test_state_d_and_a_held_lock_cost_their_limit_at_most() -> None:
    with job(8, "hard") as pid:
        told, took, _ = stacks(pid, "--timeout", 15)
    assert at(told["tree"], "fetch_shard") == 1
    assert at(told["tree"], "all_reduce") == 5
    # py-spy may read both all the same: it needs neither the lock nor the process's help.
    unread = {each["pid"] for each in told["missing"]}
    assert at(told["tree"], "wait_in_the_kernel") + at(told["tree"], "hold_the_lock") + len(unread) >= 2
    assert all(each["why"] for each in told["missing"])
    assert took < 60
