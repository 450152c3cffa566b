"""What other settings would return, on constructed profiles whose answer can be worked out by hand."""

from __future__ import annotations

import pytest

from tests.traces import Rank, meet
from whichrank.flows.trace.analyse import trace

GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def advice(folder, ranks, wanted):
    for one in ranks:
        one.write(folder)
    return [one for one in trace([folder]).advice if one.id == wanted]


def gathered(folder, *, early):
    """Four units of FSDP: 1 ms to gather, 2 ms to compute; `early` gathers the next one while a unit computes."""
    ranks = [Rank(r, 2) for r in range(2)]
    for step in range(4):
        begun = [one.now for one in ranks]
        for one in ranks:
            one._add("user_annotation", "FSDP::all_gather", one.now - 600, 50)
            one.kernel(10, "start")
        for unit in range(4):
            if unit == 0 or not early:
                meet(ranks, 1000, name=GATHER, **{"Collective name": "_allgather_base"})
            if early and unit < 3:
                meet(ranks, 1000, wait=False, name=GATHER, **{"Collective name": "_allgather_base"})
            for one in ranks:
                one.kernel(2000)
        for one, start in zip(ranks, begun, strict=True):
            one.kernel(200, "adam")
            one.step(step, start - 650, one.now - 660)
    return advice(folder, ranks, "prefetch")


def test_parameters_that_are_gathered_when_they_are_needed_are_worth_prefetching(tmp_path):
    (found,) = gathered(tmp_path, early=False)
    assert found.gain_us_per_step == pytest.approx(3 * 1000, rel=0.02)
    assert "forward_prefetch=True" in found.setting


def test_parameters_that_come_early_already_return_nothing(tmp_path):
    assert gathered(tmp_path, early=True) == []


@pytest.mark.parametrize("ddp", [True, False])
def test_twice_the_batch_halves_the_price_of_the_gradients(tmp_path, ddp):
    """5 ms of computation and 1 ms of all-reduce: 11 ms for twice the samples instead of 12."""
    ranks = [Rank(r, 2) for r in range(2)]
    for step in range(4):
        begun = [one.now for one in ranks]
        for one in ranks:
            if ddp:
                one._add("cpu_op", "DistributedDataParallel.forward", one.now - 600, 50)
            one.kernel(4000)
        meet(ranks, 1000)
        for one, start in zip(ranks, begun, strict=True):
            one.kernel(1000, "adam")
            one.step(step, start - 650, one.now - 660)
    found = advice(tmp_path, ranks, "batch")
    assert [round(one.gain_us_per_step) for one in found] == ([500] if ddp else [])
