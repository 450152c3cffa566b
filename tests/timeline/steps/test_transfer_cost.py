"""What all-reduces of another size cost: jobs by a known law, beside the same jobs with one bucket."""

from __future__ import annotations

import random

import pytest

from tests.traces import Rank, meet
from whichrank.flows.trace.analyse import trace

STEPS = 5


def ddp(folder, sizes, takes, *, compute=30_000.0):
    """Two ranks of DDP that reduce buckets of so many elements after their backward pass; `takes` is the law."""
    ranks = [Rank(r, 2) for r in range(2)]
    for step in range(STEPS):
        begun = [one.now for one in ranks]
        for one in ranks:
            one._add("cpu_op", "DistributedDataParallel.forward", one.now - 600, 50)
            one.kernel(compute)
        for size in sizes:
            meet(ranks, takes(4 * size), **{"In msg nelems": size, "Out msg nelems": size})
        for one, start in zip(ranks, begun, strict=True):
            one.kernel(200, "adam")
            one.step(step, start - 650, one.now - 660)
    for one in ranks:
        one.write(folder)
    return trace([folder])


def the_buckets(report):
    (found,) = [one for one in report.advice if "buckets" in one.id]
    return found


@pytest.mark.parametrize(("per_call", "per_byte"), [(200.0, 0.0002), (20.0, 0.002), (500.0, 0.0)])
def test_the_step_with_one_bucket_is_that_of_a_job_with_one_bucket(tmp_path, per_call, per_byte):
    def law(size):
        return per_call + per_byte * size

    sizes = [50_000, 100_000, 75_000, 150_000] * 6
    many = ddp(tmp_path / "many", sizes, law)
    one = ddp(tmp_path / "one", [sum(sizes)], law)
    found = the_buckets(many)
    low, high = found.gain_range_us_per_step
    assert low <= found.gain_us_per_step <= high
    assert many.step_us - found.gain_us_per_step == pytest.approx(one.step_us, rel=0.02)


def test_times_that_scatter_too_much_leave_the_gain_open(tmp_path):
    """Sizes that hardly differ and times that do: nobody can say what 40 times as many bytes take."""
    chance = random.Random(7)
    report = ddp(tmp_path, [70_000, 80_000] * 20, lambda _: chance.uniform(300, 3000), compute=5_000.0)
    found = the_buckets(report)
    assert found.gain_us_per_step is None
    assert "one recording can't tell" in found.why
    low, high = found.gain_range_us_per_step
    assert 0 <= low < high < report.step_us


def test_one_size_on_a_short_step_leaves_the_gain_open(tmp_path):
    """400 kB each: what a byte costs and what a call can't be told apart, and it would decide."""
    report = ddp(tmp_path, [100_000] * 40, lambda _: 500.0, compute=5_000.0)
    found = the_buckets(report)
    assert found.gain_us_per_step is None
    assert found.gain_range_us_per_step == (0.0, pytest.approx(39 * 500, rel=0.02))
