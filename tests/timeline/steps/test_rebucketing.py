"""DDP's backward pass with other bucket sizes: by hand, beside torch's own filling, and beside a slower simulation."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from whichrank.flows.trace.analyse import trace
from whichrank.model.step_report import StepReport
from whichrank.report.steps import html, text
from whichrank.report.steps import json as as_json
from whichrank.timeline.steps.rebucketing import LANES, Backward, Price, caps, reduced_at

SAMPLE = Path(__file__).parents[2] / "samples" / "traces" / "gloo_data_4rank"
MS = 1e6


def test_an_all_reduce_alone_takes_its_call_and_its_bytes():
    assert reduced_at(np.array([5.0]), np.array([100.0]), Price(10.0, 2.0)).tolist() == [215.0]


def test_two_share_the_rate_and_a_third_waits_for_a_lane():
    """Equal ones, ready together: two take twice as long, then the last has it all."""
    over = reduced_at(np.zeros(3), np.full(3, 100.0), Price(0.0, 1.0))
    assert over.tolist() == [200.0, 200.0, 300.0]


def slowly(ready, sizes, price, tick=0.01):
    """The same in small steps of time."""
    over, left, waiting, now = {}, {}, list(range(len(ready))), 0.0
    while len(over) < len(ready):
        while waiting and len(left) < LANES and ready[waiting[0]] <= now:
            op = waiting.pop(0)
            left[op] = [price.per_call, sizes[op] * price.per_byte]
        moving = [op for op, (call, _) in left.items() if call <= 0]
        for op in list(left):
            if op in moving:
                left[op][1] -= tick / len(moving)
            else:
                left[op][0] -= tick
            if left[op][0] <= 0 and left[op][1] <= 0:
                over[op] = now + tick
                del left[op]
        now += tick
    return [over[op] for op in range(len(ready))]


@pytest.mark.parametrize("seed", range(5))
def test_transfers_end_as_in_a_simulation_in_small_steps(seed):
    chance = np.random.default_rng(seed)
    ready, sizes = np.cumsum(chance.uniform(0, 8, 7)), chance.uniform(1, 10, 7)
    price = Price(1.5, 0.7)
    assert reduced_at(ready, sizes, price) == pytest.approx(slowly(ready, sizes, price), abs=0.3)


SIZES = [4 * n for n in (300, 90_000, 500, 250_000, 700, 60_000, 250_000, 1_000, 400_000, 120_000)]


def recorded(cap, price, sizes=SIZES, lag=0.2 * MS):
    """A backward pass as it would be recorded, by the law of `price`; a gradient is ready every 4 ms."""
    ready = 4 * MS * np.arange(len(sizes))
    one = Backward(sizes, [], ready, ready, ready)
    counts = one.filled(cap)
    last = np.cumsum(counts) - 1
    begins = ready[last] + lag
    bytes_ = np.add.reduceat(sizes, np.concatenate(([0], last[:-1] + 1)))
    return Backward(sizes, counts, ready, begins, reduced_at(begins, bytes_, price))


@pytest.mark.parametrize("cap", [1, 1e5, 1e6, 3e6])
def test_buckets_are_filled_as_ddp_fills_them(cap):
    import torch
    import torch.distributed as dist

    tensors = [torch.empty(size // 4) for size in SIZES]
    filled, _ = dist._compute_bucket_assignment_by_size(tensors, [int(cap)])
    assert recorded(cap, Price(0, 1)).recorded == [len(one) for one in sorted(filled)]
    filled, _ = dist._compute_bucket_assignment_by_size(tensors, [2000, int(cap)])
    assert recorded(cap, Price(0, 1)).filled(cap, 2000) == [len(one) for one in sorted(filled)]


@pytest.mark.parametrize("price", [Price(0.3 * MS, 20.0), Price(3 * MS, 8.0)])
@pytest.mark.parametrize("other", [1.0, 4e5, 2e6, 1e9])
def test_the_step_with_another_size_is_that_of_a_job_with_that_size(price, other):
    job, rerun = recorded(1e6, price), recorded(other, price)
    step = 100 * MS
    real = step + rerun.ends.max() - job.ends.max()
    found = job.predicted(step, job.filled(other))
    assert found.buckets == len(rerun.recorded)
    assert found.likely == pytest.approx(real, rel=0.05)
    assert found.low - 0.01 * step <= real <= found.high + 0.01 * step


def test_one_bucket_does_not_tell_a_call_from_its_bytes():
    job = recorded(1e9, Price(1 * MS, 20.0))
    found = job.predicted(200 * MS, job.filled(1))
    assert found.high > 1.5 * found.low
    assert job.predicted(200 * MS, job.recorded).low == job.predicted(200 * MS, job.recorded).high == 200 * MS


def test_sizes_worth_a_look_make_different_buckets():
    job = recorded(1e6, Price(0, 20.0))
    counts = [tuple(job.filled(cap)) for cap in caps(job)]
    assert len(set(counts)) == len(counts) > 3
    assert len(counts[-1]) == 1


def told(folder: Path, sizes: list[list[int]] | None) -> StepReport:
    """A real job's profiles, as `whichrank profile` would have written them: four buckets, four gradients in each."""
    for file in SAMPLE.glob("*.gz"):
        document = json.loads(gzip.decompress(file.read_bytes()))
        buckets = [{"bytes": 33280, "parameters": [f"{n}.{part}" for part in range(4)]} for n in range(4)]
        for one, parts in zip(buckets, sizes or (), strict=False):
            one["sizes"] = parts
        document["whichrank"] = {"ddp_buckets": buckets}
        (folder / file.name).write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    return trace([folder])


def test_a_real_job_with_other_bucket_sizes(tmp_path):
    report = told(tmp_path, [[256, 16384, 256, 16384]] * 4)
    steps = {one.buckets: one for one in report.bucket_sizes}
    assert sorted(steps) == [1, 2, 4, 8]
    assert steps[4].step_us == report.step_us
    assert all(one.range_us[0] <= one.step_us <= one.range_us[1] for one in report.bucket_sizes)
    document = json.loads("".join(as_json.render(report)))
    assert [one["buckets"] for one in document["bucket_sizes"]] == [8, 4, 2, 1]
    assert "OTHER BUCKET SIZES" in "".join(text.render(report))
    assert "Other bucket sizes" in "".join(html.render(report))


@pytest.mark.parametrize("sizes", [None, [[256, 16384, 256, 16384]] * 3, [[1, 2, 3, 4]] * 4, [[256, 16384, 16640]] * 4])
def test_without_the_sizes_of_all_gradients_nothing_is_told(tmp_path, sizes):
    assert told(tmp_path, sizes).bucket_sizes == ()


def test_without_the_profiles_of_all_ranks_nothing_is_told(tmp_path):
    told(tmp_path, [[256, 16384, 256, 16384]] * 4)
    next(tmp_path.glob("*.gz")).unlink()
    assert trace([tmp_path]).bucket_sizes == ()
