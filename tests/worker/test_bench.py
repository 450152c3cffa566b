"""The benchmark inside a rank, against a timer that was written separately and runs beside it."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests import needs
from tests.run import watched

needs.package("torch")

# A timer of its own around the very same calls: where batches begin is all that it learns from the benchmark.
BOTH = """
import json, statistics, sys, time, torch, torch.distributed as dist
from whichrank.facts.hardware.bandwidth import bandwidths
from whichrank.worker.bench import collectives
from whichrank.worker.bench import rank as bench
dist.init_process_group("gloo"); torch.set_num_threads(1)
device, ratios = torch.device("cpu"), []
n = dist.get_world_size()
for name, share in (("all_reduce", 2 * (n - 1) / n), ("all_gather", (n - 1) / n), ("broadcast", 1)):
    for octets in (64 << 10, 1 << 20):
        real, batches = collectives.prepare(name, octets, torch.float32, device), []
        def call():
            start = time.monotonic_ns()
            real.call()
            if batches: batches[-1].append((start, time.monotonic_ns()))
        def reset():
            batches.append([])
            real.reset()
        told = bench.measure(real._replace(call=call, reset=reset), 0.2, device)
        own = [(batch[-1][1] - batch[0][0]) / len(batch) / 1e9 for batch in batches]
        everyone = [None] * n
        dist.all_gather_object(everyone, own)
        seconds = statistics.median(map(max, zip(*everyone)))
        busbw = real.octets * share / seconds / 1e9
        ratios.append(busbw / bandwidths(name, real.octets, told.seconds, n)[1])
good = collectives.prepare("all_reduce", 4096, torch.float32, device).right()
real_all_reduce = dist.all_reduce
def broken(x, *a, **k):
    real_all_reduce(x, *a, **k)
    if x.numel() > 8 and dist.get_rank() == 1: x[3] += 1
dist.all_reduce = broken
bad = collectives.prepare("all_reduce", 4096, torch.float32, device).right()
dist.all_reduce = real_all_reduce
sys.stdout.write(json.dumps({"rank": dist.get_rank(), "ratios": ratios, "good": good, "bad": bad}) + "\\n")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What both ranks of one job say."""
    script = tmp_path_factory.mktemp("bench") / "both.py"
    script.write_text(BOTH)
    command = watched.forked(script, world=2)
    done = subprocess.run(command, stdout=-1, text=True, env=watched.environment(), timeout=300, check=True)
    return sorted(map(json.loads, done.stdout.splitlines()), key=lambda said: said["rank"])


def test_a_separate_timer_agrees_within_5_percent(told):
    found = told[0]["ratios"]
    assert len(found) == 6
    assert max(abs(ratio - 1) for ratio in found) < 0.05


def test_wrong_data_is_noticed(told):
    """A collective that delivers something else than it must is told by the rank that has it."""
    assert [(rank["good"], rank["bad"]) for rank in told] == [(True, True), (True, False)]
