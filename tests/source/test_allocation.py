"""What a job asks its scheduler for."""

import pytest

from whichrank.source.shell.allocation import Allocation
from whichrank.source.shell.launchers import PROGRAMS
from whichrank.source.shell.passage import LAUNCHERS


@pytest.mark.parametrize(
    ("directives", "nodes", "gpus"),
    [
        (["#SBATCH --nodes=4", "#SBATCH --gpus-per-node=h100:8"], 4, 8),
        (["#SBATCH -N 2 --gres=gpu:4"], 2, 4),
        (["#SBATCH -N2", "#SBATCH -G 8"], 2, 4),
        (["#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-task=1"], 2, 4),
        (["#SBATCH --nodes=2-4 --gpus-per-node=8"], None, 8),
        (["#SBATCH --gres=shard:4"], None, None),
        (["#PBS -l select=2:ncpus=64:ngpus=4"], 2, 4),
        (["#PBS -l select=1:ngpus=1+4:ngpus=8"], None, None),
        (["#BSUB -nnodes 8", '#BSUB -gpu "num=6:mode=shared"'], 8, 6),
        (['#BSUB -gpu "num=1/task"'], None, None),
    ],
)
def test_size_of_a_job(directives, nodes, gpus):
    found = Allocation()
    for line, text in enumerate(directives, 1):
        found = found.directive(text, line)
    assert (found.nodes and found.nodes.number) == nodes
    assert (found.devices and found.devices.number) == gpus


def test_every_launcher_that_is_recognised_is_read():
    assert set(PROGRAMS) == LAUNCHERS
