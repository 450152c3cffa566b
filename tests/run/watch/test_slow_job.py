"""A job that one rank holds up, watched for real: told while it runs, shown, counted, and the verdict at the end."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.run import watched

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.bars,
]

JOB = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, until = dist.get_rank(), time.monotonic() + float(sys.argv[2])

def extra_work():
    end = time.monotonic() + 0.15
    while time.monotonic() < end:
        sum(range(1000))

def everybody_works():
    time.sleep(0.05)

go = torch.ones(1)
while go.item():
    everybody_works()
    if rank == 1 and sys.argv[1] == "slow":
        extra_work()
    dist.all_reduce(torch.ones(1024))
    go = torch.tensor([float(time.monotonic() < until)])
    dist.broadcast(go, 0)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("what", ["slow", "even"])
def test_a_straggler(tmp_path: Path, what: str) -> None:
    script, out = tmp_path / "train.py", tmp_path / "out"
    script.write_text(JOB)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "3"]
    command = [*launcher, "--master_port", str(watched.free_port()), str(script), what, "75"]
    line = watched.whichrank("run", "--no-history", "--metrics", "0", "--out", out, "--", *command)
    with (tmp_path / "stderr").open("w") as errors:
        job = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=errors, env=watched.environment())
    told = (tmp_path / "stderr").read_text
    deadline = time.monotonic() + 240
    while job.poll() is None and "slow: rank 1 holds the others up" not in told():
        assert time.monotonic() < deadline
        time.sleep(0.5)
    if what == "slow":
        assert job.poll() is None, told()
        view = subprocess.run(
            watched.whichrank("watch", out), capture_output=True, text=True, env=watched.environment(), check=False
        ).stdout
        assert "slow: rank 1 holds the others up" in view
        assert re.search(r"waiting in (all_reduce|broadcast)", view), view
        (url,) = re.findall(r"metrics are at (\S+)", told())
        with urllib.request.urlopen(url) as page:
            assert b'whichrank_straggler_lost_ratio{rank="1"} 0.' in page.read()
    assert job.wait(240) == 0, told()
    watched.check_schemas(out)
    if what == "even":
        assert "slow" not in told()
        assert not (out / "verdict.json").exists()
        return
    verdict = watched.Done(0, "", told(), out, 0.0).verdict
    assert (verdict["category"], verdict["cause"], verdict["culprits"]["ranks"]) == ("slow", "straggler", [1])
    assert verdict["culprits"]["code"][0]["function"] == "extra_work"
