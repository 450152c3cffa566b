"""Lines that say how many lanes the link of a GPU has and could have."""

from __future__ import annotations

import pytest

from whichrank.evidence.readers.gpu_lines import read, sniff
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.contracts import Item


def inventory(narrow: tuple[int, ...], shape: str = "width {lanes} (max 16)") -> str:
    return "".join(
        f"06:00:00 pv-{1 + rank // 4} survey: rank {rank} gpu {rank % 4} PCIe gen 4 (max 4) "
        f"{shape.format(lanes=8 if rank in narrow else 16)}, 41C\n"
        for rank in range(8)
    )


@pytest.mark.parametrize("shape", ["width {lanes} (max 16)", "lanes: x{lanes} of x16", "width={lanes}, max=16"])
def test_the_lanes_of_every_gpu(tmp_path, shape):
    path = tmp_path / "job.log"
    path.write_text(inventory((6,), shape))
    item = Item(path, "job.log", path.stat().st_size, 0)
    assert sniff(item.head(), "job.log")
    states = read(item).records
    assert [(s.host, s.index, s.values["pcie_width"]) for s in states][5:7] == [("pv-2", 1, "16"), ("pv-2", 2, "8")]


def test_lines_without_a_gpu_or_its_maximum_are_none():
    assert not sniff(b"gpu 3 pcie gen 5 width 16\nimage width 640 (max 1024)\n", "job.log")


@pytest.mark.parametrize(("narrow", "ranks"), [((6,), (6,)), ((), ())])
def test_a_run_that_is_slow_by_one_narrow_link_is_not_healthy(tmp_path, narrow, ranks):
    steps = "".join(f"06:01:{at:02} pv-1 train: step {at} loss 2.{90 - at} step_time 9.8s\n" for at in range(1, 40))
    (tmp_path / "job.log").write_text(inventory(narrow) + steps)
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert verdict.culprits.ranks == ranks
    assert (verdict.cause == "pcie-degraded", verdict.cause == "healthy") == (bool(narrow), not narrow)
