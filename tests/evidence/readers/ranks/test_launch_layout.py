"""How launches spread ranks over hosts, in the words of launchers, schedulers and hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.evidence.readers.launch_layout import read, sniff
from whichrank.model.contracts import Item
from whichrank.records.placement import Layout

LISTED = "SLURM_JOB_NODELIST=n[08-10],m3\n"
TORCHRUN = "srun torchrun --nnodes 4 --nproc_per_node 8 --node_rank $SLURM_NODEID --master_addr n08 t.py\n"


def layout(tmp_path: Path, text: str) -> Layout | None:
    path = tmp_path / "launch.txt"
    path.write_text(text)
    item = Item(path, "launch.txt", path.stat().st_size, 0)
    assert sniff(text.encode(), "launch.txt")
    records = read(item).records
    return records[0] if records else None  # type: ignore[return-value]


def test_a_command_with_the_list_of_the_scheduler(tmp_path: Path) -> None:
    found = layout(tmp_path, "nodes: n[08-10]\n" + TORCHRUN.replace("nodes 4", "nodes 3"))
    assert found is not None
    assert (found.hosts, found.per_host, found.nodes, found.world) == (("n08", "n09", "n10"), 8, 3, 24)
    assert (found.by_scheduler, found.one_task, found.store) == (True, True, "n08")


@pytest.mark.parametrize(
    ("text", "world", "by_scheduler"),
    [
        ("torchrun --standalone --nproc_per_node=4 t.py\n", 4, False),
        ("accelerate launch --num_processes 8 t.py\n", 8, False),
        ("torchrun --nnodes 1:2 --nproc_per_node 4 t.py\n", 0, False),
        ("torchrun --nnodes $N --nproc_per_node $G t.py --master_port 1\n", 0, False),
        ("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\nsrun python t.py\n", 8, True),
        ("#SBATCH --ntasks-per-node=4\nsrun -m cyclic python t.py\n", 0, False),
    ],
)
def test_how_many_ranks(tmp_path: Path, text: str, world: int, by_scheduler: bool) -> None:
    found = layout(tmp_path, text)
    assert (found.world if found else 0, found.by_scheduler if found else False) == (world, by_scheduler)


@pytest.mark.parametrize(
    ("text", "numbered"),
    [
        ("[entry] host=b-3 node_rank=0\n[entry] host=b-4 node_rank=1\n", {"b-3": 0, "b-4": 1}),
        ("a2: [INFO] [launch.py:152:main] nnodes=2, num_local_procs=8, node_rank=1\n", {"a2": 1}),
        ("torchrun --node_rank=1 t.py  # b-3 is node_rank 0, b-4 is node_rank 1\n", {"b-3": 0, "b-4": 1}),
        ("torchrun --node_rank=1 t.py (b-3 node rank 0, b-4 node rank 0)\n", {}),
        ("host=b-3 node_rank=0\nhost=b-4 node_rank=0\n", {}),
        ("torchrun --nnodes 2 --node_rank=1 t.py\nexport node_rank=1\n", {}),
    ],
)
def test_hosts_that_say_their_number(tmp_path: Path, text: str, numbered: dict[str, int]) -> None:
    found = layout(tmp_path, text)
    assert (found.numbered if found else {}) == numbered


@pytest.mark.parametrize(
    "text",
    [
        LISTED + LISTED.replace("08-10", "09-11"),  # two lists
        "#SBATCH --nodelist=n2,n1\n",  # as it was asked for, not as the scheduler counts
        "SLURM_JOB_NODELIST=n[1-999999999]\n",
    ],
)
def test_lists_that_say_nothing_of_the_order(tmp_path: Path, text: str) -> None:
    found = layout(tmp_path, text)
    assert found is None or found.hosts == ()


def test_two_addresses_are_no_meeting_point(tmp_path: Path) -> None:
    found = layout(tmp_path, "MASTER_ADDR=n1\nMASTER_ADDR=n2\nMASTER_ADDR=localhost\n")
    assert found is None or found.store == ""
