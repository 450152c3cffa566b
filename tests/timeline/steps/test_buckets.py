"""What the names and sizes of collectives tell: NCCL's algorithm of every era, and DDP's buckets."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.traces import Rank, job, meet
from whichrank.flows.trace.analyse import trace
from whichrank.model.step_report import Bucket
from whichrank.records.profiles.trace import Filled
from whichrank.report.steps import json as as_json
from whichrank.report.steps import text
from whichrank.timeline.steps.buckets import with_contents
from whichrank.timeline.steps.collectives import algorithm

SAMPLE = Path(__file__).parents[2] / "samples" / "traces" / "gloo_data_4rank"


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ring ll"),
        ("ncclKernel_AllReduce_TREE_LL128_Sum_float(ncclDevComm*)", "tree ll128"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "ring ll"),
        ("ncclDevKernel_AllReduce_Sum_bf16_NVLS_SIMPLE(x)", "nvls simple"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", None),
        ("void ringbuffer_kernel(int)", None),
    ],
)
def test_the_algorithm_by_the_kernels_name(kernel, told):
    assert algorithm(kernel) == told


def test_the_buckets_of_a_real_ddp_job():
    report = trace([SAMPLE])
    assert len(report.buckets) == 4
    assert [one.begins_us for one in report.buckets] == sorted(one.begins_us for one in report.buckets)
    document = json.loads("".join(as_json.render(report)))
    assert len(document["buckets"]) == 4
    assert "DDP BUCKETS" in "".join(text.render(report))


BUCKETS = [{"bytes": 33280, "parameters": [f"layers.{place}.weight"]} for place in range(4)]


def told(folder, **words):
    """The real job's profiles, as `whichrank profile` would have written them."""
    for file in SAMPLE.glob("*.gz"):
        document = json.loads(gzip.decompress(file.read_bytes()))
        document["whichrank"] = words
        (folder / file.name).write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    return trace([folder])


def test_what_ddp_put_into_its_buckets(tmp_path):
    report = told(tmp_path, ddp_buckets=BUCKETS)
    assert [one.parameters for one in report.buckets] == [(f"layers.{place}.weight",) for place in range(4)]
    assert "layers.0.weight" in "".join(text.render(report))
    assert json.loads("".join(as_json.render(report)))["buckets"][3]["parameters"] == ["layers.3.weight"]


@pytest.mark.parametrize(
    "odd",
    [
        BUCKETS[:3],
        [{"bytes": "many", "parameters": ["x"]}],
        [{"bytes": 33280, "parameters": [7]}],
        [33280],
        "none",
    ],
)
def test_contents_that_do_not_fit_the_all_reduces_are_not_told(tmp_path, odd):
    report = told(tmp_path, ddp_buckets=odd)
    assert len(report.buckets) == 4
    assert not any(one.parameters for one in report.buckets)


@pytest.mark.parametrize(
    ("sizes", "contents"),
    [
        ([400, 4, 800], ["a", "", "b"]),  # a loss is reduced between them
        ([400, 800, 400, 800], ["a", "b", "a", "b"]),  # two backward passes
        ([800, 400], ["", ""]),
        ([400, 800, 400], ["", "", ""]),
    ],
)
def test_buckets_are_known_by_their_order_and_sizes(sizes, contents):
    found = with_contents([Bucket(size, None, 0.0, 1.0) for size in sizes], [Filled(400, ("a",)), Filled(800, ("b",))])
    assert ["".join(one.parameters) for one in found] == contents


CALLS = [{"name": "gloo:all_reduce", "Input Dims": [[size]], "Input type": ["float"]} for size in (8320, 10, 20, 30)]


def test_sizes_of_one_step_are_those_of_every_step(tmp_path):
    """The sample holds no shapes; its steps make four all-reduces each."""
    assert {one.bytes for one in trace([SAMPLE]).collectives} == {None}
    report = told(tmp_path, collectives=CALLS)
    assert [one.bytes for one in report.buckets] == [33280, 40, 80, 120]
    assert sorted((one.bytes, one.per_step) for one in report.collectives) == [(40, 1), (80, 1), (120, 1), (33280, 1)]


def test_a_loss_beside_the_buckets_is_merged_with_nothing_of_them(tmp_path):
    """A tensor of no dimensions has a size, too; and one that tells none does not end the report."""
    calls = [*CALLS[:3], {"name": "gloo:all_reduce", "Input Dims": [[]], "Input type": ["double"]}]
    assert [one.bytes for one in told(tmp_path, collectives=calls).buckets] == [33280, 40, 80, 8]
    calls[3] = {"name": "gloo:all_reduce", "Input Dims": [[]], "Input type": [""]}
    assert [one.bytes for one in told(tmp_path, collectives=calls).buckets] == [33280, 40, 80, None]


@pytest.mark.parametrize("odd", [CALLS[:3], [*CALLS, CALLS[0]], [7], "none", [{"name": 3, "Input Dims": {}}] * 4])
def test_sizes_of_another_number_of_calls_are_not_told(tmp_path, odd):
    assert {one.bytes for one in told(tmp_path, collectives=odd).collectives} == {None}


def test_values_read_back_in_every_step_cost_the_time_in_which_the_device_is_idle(tmp_path):
    """The call waits for kernels that have to run anyway; then the device waits for what the host launches next."""

    def read(one, _step):
        one._add("cpu_op", "aten::_local_scalar_dense", one.now - 50, 850)
        one.host_time(300)

    job(tmp_path, extra=read)
    (found,) = [one for one in trace([tmp_path]).advice if one.id == "item"]
    assert found.gain_us_per_step == pytest.approx(300, rel=0.05)
    assert "1 values" in found.why


def test_many_small_all_reduces_are_worth_merging(tmp_path):
    ranks = [Rank(r, 2) for r in range(2)]
    for step in range(4):
        begun = [one.now for one in ranks]
        for one in ranks:
            one.kernel(4000)
        for _ in range(60):
            meet(ranks, 40, **{"In msg nelems": 1000, "Out msg nelems": 1000})
        for one, start in zip(ranks, begun, strict=True):
            one.kernel(200, "adam")
            one.step(step, start - 600, one.now - 610)
    for one in ranks:
        one.write(tmp_path)
    (found,) = [one for one in trace([tmp_path]).advice if one.id == "buckets"]
    assert found.gain_us_per_step == pytest.approx(59 * 40, rel=0.1)


@pytest.mark.parametrize("every_round", [True, False])
def test_gradients_that_are_reduced_in_every_round_of_an_accumulation(tmp_path, every_round):
    """Four rounds, six buckets: with no_sync() only the last round reduces them."""
    ranks = [Rank(r, 2) for r in range(2)]
    for step in range(4):
        begun = [one.now for one in ranks]
        for turn in range(4):
            for one in ranks:
                one._add("cpu_op", "DistributedDataParallel.forward", one.now - 600, 50)
                one.kernel(3000)
            for _ in range(6 if every_round or turn == 3 else 0):
                meet(ranks, 100)
            for one in ranks:
                one.kernel(10, "after")
        for one, start in zip(ranks, begun, strict=True):
            one._add("user_annotation", "Optimizer.step#SGD.step", one.now - 500, 20)
            one.kernel(200, "sgd")
            one.step(step, start - 650, one.now - 660)
    for one in ranks:
        one.write(tmp_path)
    assert [one.id for one in trace([tmp_path]).advice if one.id == "no-sync"] == ["no-sync"] * every_round


def reduced_by_ddp(folder, sizes, extra=""):
    """Two ranks whose backward passes reduce buckets of so many elements (4 bytes each)."""
    ranks = [Rank(r, 2) for r in range(2)]
    for step in range(4):
        begun = [one.now for one in ranks]
        for one in ranks:
            one._add("cpu_op", "DistributedDataParallel.forward", one.now - 600, 50)
            if extra:
                one._add("cpu_op", extra, one.now - 600, 50)
            one.kernel(40_000)
        for size in sizes:
            meet(ranks, 40, **{"In msg nelems": size, "Out msg nelems": size})
        for one, start in zip(ranks, begun, strict=True):
            one.kernel(200, "adam")
            one.step(step, start - 650, one.now - 660)
    for one in ranks:
        one.write(folder)
    return [one for one in trace([folder]).advice if one.id == "small-buckets"]


def test_buckets_far_below_the_default_are_a_setting_to_change(tmp_path):
    (found,) = reduced_by_ddp(tmp_path, [50_000] * 40)
    assert "40 all-reduces per backward pass, 2 by default" in found.what
    assert "bucket_cap_mb=25" in found.setting
    low, high = found.gain_range_us_per_step  # one size: each byte may cost nothing, or all of the time
    assert low <= found.gain_us_per_step <= high
    assert (low, high) == (0.0, pytest.approx(39 * 40, rel=0.02))


def test_buckets_as_ddp_makes_them_are_right(tmp_path):
    assert not reduced_by_ddp(tmp_path, [250_000, *[6_400_000] * 9, 3_000_000])


def test_small_all_reduces_of_batch_norms_are_not_buckets(tmp_path):
    assert not reduced_by_ddp(tmp_path, [512] * 40, "SyncBatchNormBackward")
