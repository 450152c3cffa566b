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
