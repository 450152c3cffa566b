"""What a check before a job prints of the PCIe link of each GPU."""

from __future__ import annotations

import pytest

from whichrank.evidence.readers.host_lines import read, sniff
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.contracts import Item
from whichrank.records.hardware import GpuState

SHAPES = (
    "{task}: {host} check gpu{gpu} temp 37C pcie gen4 x{lanes} (max gen4 x16) ecc 0 ok",
    "[{host}] GPU {gpu}: NVIDIA A100, PCIe Gen4 x{lanes}/x16",
    "{host}: gpu {gpu} pcie: x{lanes} of x16, nvlink 12/12",
)


def rows(shape, narrow):
    """Two hosts with two GPUs each, of which some have fewer lanes."""
    places = [(task, f"zn-{task // 2}", task % 2) for task in range(4)]
    return "".join(
        shape.format(task=task, host=host, gpu=gpu, lanes=8 if task in narrow else 16) + "\n"
        for task, host, gpu in places
    )


def states(tmp_path, text):
    path = tmp_path / "job.log"
    path.write_text(text)
    item = Item(path, "job.log", len(text), 0)
    assert sniff(item.head(), "job.log")
    return [record for record in read(item).records if isinstance(record, GpuState)]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_gpu_with_its_lanes(tmp_path, shape):
    told = states(tmp_path, rows(shape, {2}))
    assert [(s.host, s.index, s.values["pcie_width"], s.values["pcie_width_max"]) for s in told] == [
        ("zn-0", 0, "16", "16"), ("zn-0", 1, "16", "16"), ("zn-1", 0, "8", "16"), ("zn-1", 1, "16", "16")
    ]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("narrow", [{0, 1, 2, 3}, {1, 3}, set()])
def test_hosts_that_are_all_built_so_have_no_fault(tmp_path, shape, narrow):
    assert states(tmp_path, rows(shape, narrow)) == []


def test_the_gpu_with_fewer_lanes_is_named(tmp_path):
    steps = "".join(f"0: step {step} loss 2.{step} 9.1 s/it\n" for step in range(1, 9))
    (tmp_path / "job.log").write_text(
        "srun -N2 --ntasks-per-node=2 --label python t.py\n" + rows(SHAPES[0], {2}) + steps
    )
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.cause, found.culprits.hosts) == ("pcie-degraded", ("zn-1",))
    (gpu,) = found.culprits.gpus
    assert (gpu.host, gpu.index) == ("zn-1", 0)


def inventory(narrow: tuple[int, ...], shape: str = "width {lanes} (max 16)") -> str:
    return "".join(
        f"06:00:00 pv-{1 + rank // 4} survey: rank {rank} gpu {rank % 4} PCIe gen 4 (max 4) "
        f"{shape.format(lanes=8 if rank in narrow else 16)}, 41C\n"
        for rank in range(8)
    )


@pytest.mark.parametrize("shape", ["width {lanes} (max 16)", "lanes: x{lanes} of x16", "width={lanes}, max=16"])
def test_the_lanes_of_every_gpu(tmp_path, shape):
    told = states(tmp_path, inventory((6,), shape))
    assert [(s.host, s.index, s.values["pcie_width"]) for s in told][5:7] == [("pv-2", 1, "16"), ("pv-2", 2, "8")]


def test_lines_without_a_gpu_or_its_maximum_are_none(tmp_path):
    lines = "node7 gpu 3 pcie gen 5 width 16\nnode7 gpu 4 pcie gen 5 width 8\nnode7 image width 640 (max 1024)\n"
    assert states(tmp_path, lines) == []


@pytest.mark.parametrize(("narrow", "ranks"), [((6,), (6,)), ((), ())])
def test_a_run_that_is_slow_by_one_narrow_link_is_not_healthy(tmp_path, narrow, ranks):
    steps = "".join(f"06:01:{at:02} pv-1 train: step {at} loss 2.{90 - at} step_time 9.8s\n" for at in range(1, 40))
    (tmp_path / "job.log").write_text(inventory(narrow) + steps)
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert verdict.culprits.ranks == ranks
    assert (verdict.cause == "pcie-degraded", verdict.cause == "healthy") == (bool(narrow), not narrow)
