"""The benchmark inside a rank, against a timer that was written separately and runs beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from statistics import median

import pytest

from tests.conftest import command_environment
from tests.run.watched import free_port

pytest.importorskip("torch")

# In one job and in turn: our measurement, and a plain loop between two barriers with its own formula.
BOTH = """
import json, os, time, torch, torch.distributed as dist
from whichrank.worker import bench, collectives
dist.init_process_group("gloo"); torch.set_num_threads(1)
device = torch.device("cpu")
ratios = []
for octets in (1 << 20, 4 << 20):
    prepared = collectives.prepare("all_reduce", octets, torch.float32, device)
    for _ in range(7):
        ours = bench.measure(prepared, 0.25, device).seconds
        x, times = torch.zeros(octets // 4), []
        for _ in range(40):
            dist.barrier(); start = time.monotonic()
            dist.all_reduce(x)
            mine = torch.tensor([time.monotonic() - start]); dist.all_reduce(mine, dist.ReduceOp.MAX)
            times.append(float(mine))
        again = bench.measure(prepared, 0.25, device).seconds
        theirs = sorted(times)[len(times) // 2]
        n = dist.get_world_size()
        busbw = octets * 2 * (n - 1) / n / theirs
        ratios.append(busbw / (octets * 2 * (n - 1) / n / ((ours + again) / 2)))
if dist.get_rank() == 0: print(json.dumps(ratios))
dist.destroy_process_group()
"""


def rank_environment(rank, port):
    own = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {**command_environment(), **own}


def ratios():
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", BOTH], stdout=subprocess.PIPE, text=True,
            env=rank_environment(r, port),
        )
        for r in range(2)
    ]  # fmt: skip
    said = [rank.communicate(timeout=150)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    return json.loads(said[0])


@pytest.mark.bars
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
def test_a_separate_timer_agrees_within_5_percent():
    assert abs(median(ratios()) - 1) < 0.05


def test_wrong_data_is_noticed():
    """A collective that delivers something else than it must is told, on every rank."""
    program = (
        "import os, torch, torch.distributed as dist\n"
        "from whichrank.worker import collectives\n"
        "dist.init_process_group('gloo')\n"
        "real = dist.all_reduce\n"
        "def broken(x, *a, **k):\n"
        "    real(x, *a, **k)\n"
        "    if x.numel() > 8 and dist.get_rank() == 1: x[3] += 1\n"
        "good = collectives.prepare('all_reduce', 4096, torch.float32, torch.device('cpu')).right()\n"
        "dist.all_reduce = broken\n"
        "bad = collectives.prepare('all_reduce', 4096, torch.float32, torch.device('cpu')).right()\n"
        "print(good, bad)\n"
    )
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
            env=rank_environment(r, port),
        )
        for r in range(2)
    ]  # fmt: skip
    said = [rank.communicate(timeout=100)[0].split() for rank in ranks]
    assert said == [["True", "True"], ["True", "False"]]
