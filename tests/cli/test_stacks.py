"""`whichrank stacks`: the merged tree from files and from a running job."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from uuid import uuid4

import jsonschema
import pytest

from tests.conftest import ROOT, command_environment
from whichrank.cli.tools.schema import schemas
from whichrank.evidence.collectors import tools

SAMPLES = ROOT / "tests" / "samples" / "stacks"


def ranks_at(nodes, function):
    """The ranks whose stacks go through a function."""
    found = set()
    for node in nodes:
        if node["frame"]["function"] == function:
            found |= set(node["ranks"])
        found |= ranks_at(node["children"], function)
    return found


def test_files_become_one_tree(whichrank, tmp_path):
    spied = 'Process {pid}: python train.py\nPython v3.11.7\n\nThread {pid} (idle): "MainThread"\n{frames}'
    for rank in range(4):
        inner = "fetch_shard (data.py:7)" if rank == 2 else "all_reduce (torch/distributed/distributed_c10d.py:3068)"
        frames = f"    {inner}\n    step (train.py:{30 if rank == 2 else 118})\n    <module> (train.py:200)\n"
        (tmp_path / f"rank_{rank}.txt").write_text(spied.format(pid=100 + rank, frames=frames))
    done = whichrank("stacks", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Stacks of 4 ranks\n")
    assert "4 ranks: 0-3\n" in done.stdout
    assert "3 ranks: 0-1, 3\n" in done.stdout
    told = json.loads(whichrank("stacks", tmp_path, "--format", "json").stdout)
    jsonschema.validate(told, json.loads(schemas()["stacks"].read_text()))
    assert [node["frame"]["function"] for node in told["tree"]] == ["<module>"]
    assert ranks_at(told["tree"], "fetch_shard") == {2}
    assert ranks_at(told["tree"], "all_reduce") == {0, 1, 3}


def test_stacks_without_ranks_are_told_by_their_processes(whichrank):
    told = json.loads(whichrank("stacks", SAMPLES, "--format", "json").stdout)
    jsonschema.validate(told, json.loads(schemas()["stacks"].read_text()))
    assert told["pids"]
    assert told["tree"]


def test_files_that_do_not_say_whose_they_are_count_once_each(whichrank, tmp_path):
    """faulthandler names no process, and may have written into one file several times."""
    dump = 'Thread 0x00007fa209454b80 (most recent call first):\n  File "/srv/train.py", line {} in {}\n\n'
    (tmp_path / "a.txt").write_text(dump.format(4, "load_batch") + dump.format(9, "save"))
    (tmp_path / "b.txt").write_text(dump.format(9, "save"))
    done = whichrank("stacks", tmp_path)
    assert done.stdout.splitlines() == [
        "Stacks of 2 processes without a known rank",
        "└─ 2 processes",
        "     save (/srv/train.py:9)",
    ]
    assert json.loads(whichrank("stacks", tmp_path, "--format", "json").stdout)["pids"] == [0, 0]
    done = whichrank("stacks", tmp_path, "--output", tmp_path / "stacks.html")
    assert done.stderr == (
        f"Stacks of 2 processes without a known rank. The report is in {tmp_path / 'stacks.html'}.\n"
    )


def test_no_stack_is_said(whichrank, tmp_path):
    (tmp_path / "a.log").write_text("epoch 1 loss 0.3\n")
    done = whichrank("stacks", tmp_path)
    assert done.returncode == 3
    assert done.stdout == "No stacks.\n"


def test_usage(whichrank, tmp_path):
    assert whichrank("stacks", tmp_path, "--pid", 1).returncode == 2
    assert whichrank("stacks", "--pid", 4194304).returncode == 2


# What the ranks of torchrun do needs no torch here: their stacks are read from outside.
ONE_ELSEWHERE = """
import os, time
def fetch_shard():
    os.write(1, b"elsewhere\\n")
    time.sleep(600)
def all_reduce():
    time.sleep(600)
def main():
    fetch_shard() if os.environ["RANK"] == "2" else all_reduce()
main()
"""


@pytest.mark.job
@pytest.mark.skipif(tools.py_spy() is None, reason="needs py-spy")
def test_a_live_job_is_read_and_goes_on(whichrank, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(ONE_ELSEWHERE)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=3"]
    name = f"stacks-{uuid4().hex[:8]}"
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", f"--rdzv-id={name}"]
    job = subprocess.Popen(
        [*command, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env={**command_environment(), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        assert job.stdout.readline().strip() == "elsewhere"
        deadline = time.monotonic() + 60
        while True:  # the others may still be on their way to the collective
            done = whichrank("stacks", "--job", name, "--format", "json", "--timeout", "20")
            told = json.loads(done.stdout)
            if ranks_at(told["tree"], "all_reduce") == {0, 1} or time.monotonic() > deadline:
                break
        assert told["missing"] == []
        assert ranks_at(told["tree"], "all_reduce") == {0, 1}
        assert ranks_at(told["tree"], "fetch_shard") == {2}
        assert ranks_at(told["tree"], "main") == {0, 1, 2}
        by_pid = json.loads(whichrank("stacks", "--pid", job.pid, "--format", "json", "--timeout", "20").stdout)
        assert ranks_at(by_pid["tree"], "fetch_shard") == {2}
        assert job.poll() is None
    finally:
        job.terminate()  # the launcher ends its ranks, which have sessions of their own
        try:
            job.wait(60)
        finally:
            job.kill()
