"""A job that becomes slow because all its ranks wait for data."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path

import pytest

from tests.run import watched
from whichrank.model.last_words import JOINED, Words
from whichrank.run.watch.job_processes import Member
from whichrank.run.watch.slow.verdicts import short_of_data
from whichrank.run.watch.slow.waits_for_data import LOADING, DataWaits, WaitsForData

LOOK_S = 0.5
PLACE = "/home/a/train.py:31 epoch"


class Job:
    """Ranks that load data for a share of their time, each step at one pace."""

    def __init__(self, world: int = 4, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.members = [
            Member(Words(pid=100 + rank, rank=rank, world=world, phase=JOINED, place=PLACE), str(rank))
            for rank in range(world)
        ]
        self.found, self.now, self.steps = DataWaits(), 100.0, 0.0

    def run(self, seconds: float, pace: float, *shares: float) -> list[WaitsForData]:
        told = []
        for _ in range(int(seconds / LOOK_S)):
            self.now += LOOK_S
            self.steps += LOOK_S * pace
            for member, share in zip(self.members, shares, strict=True):
                activity = LOADING if self.random.random() < share else "forward"
                words = member.words
                member.words = words._replace(beat=words.beat + 1, steps=int(self.steps), activity=activity)
            if found := self.found.observe(self.now, self.members):
                told.append(found)
        return told


@pytest.mark.parametrize("seed", range(10))
def test_data_that_becomes_slow(seed: int) -> None:
    job = Job(seed=seed)
    assert job.run(10, 12, *[0.05] * 4) == []
    told = job.run(20, 3, *[0.8] * 4)
    assert 0.6 < told[-1].share < 0.95
    assert (told[-1].pace, told[-1].place) == (pytest.approx(3, abs=0.3), "train.py:31 epoch")
    diagnosis = short_of_data(told[-1], job.members)
    assert (diagnosis.verdict.cause, diagnosis.verdict.culprits.ranks) == ("input-bound", ())
    assert "12 while they waited for data" in diagnosis.verdict.summary


@pytest.mark.parametrize("seed", range(10))
def test_a_job_that_always_waited_a_little_and_now_waits_three_times_as_long(seed: int) -> None:
    job = Job(seed=seed)
    assert job.run(20, 9, *[0.42] * 4) == []
    assert job.run(20, 3, *[0.81] * 4)


@pytest.mark.parametrize("seed", range(10))
def test_what_takes_longer_besides_the_data(seed: int) -> None:
    job = Job(seed=seed)
    job.run(20, 9, *[0.52] * 4)
    assert job.run(20, 3, *[0.52] * 4) == []


@pytest.mark.parametrize(("pace", "explained"), [(3, True), (2.7, True), (1.5, False)])
def test_who_is_the_last_to_have_its_data_is_no_straggler(pace: float, explained: bool) -> None:
    job = Job()
    job.run(10, 12, *[0.05] * 4)
    assert not job.found.explains_the_pace
    job.run(20, 3, *[0.8] * 4)
    job.run(20, pace, 0.8, 0.2, 0.2, 0.2)  # the others wait for it in a collective
    assert job.found.explains_the_pace is explained


@pytest.mark.parametrize("seed", range(10))
def test_a_job_that_was_always_like_that(seed: int) -> None:
    assert Job(seed=seed).run(120, 3, *[0.8] * 4) == []


@pytest.mark.parametrize(
    ("pace", "shares"),
    [
        (3, (0.1, 0.1, 0.1, 0.1)),  # slow by something else
        (10, (0.8, 0.8, 0.8, 0.8)),  # hardly slower
        (3, (0.95, 0.05, 0.05, 0.05)),  # the others wait for one rank
        (0.2, (0.9, 0.9, 0.9, 0.9)),  # an evaluation, with a data loader of its own
    ],
)
@pytest.mark.parametrize("seed", range(10))
def test_what_is_something_else(seed: int, pace: float, shares: tuple[float, ...]) -> None:
    job = Job(seed=seed)
    job.run(10, 12, *[0.05] * 4)
    assert job.run(60, pace, *shares) == []


def test_an_epoch_that_begins_with_its_data() -> None:
    job = Job()
    for _ in range(5):
        job.run(20, 12, *[0.05] * 4)
        assert job.run(6, 2, *[0.9] * 4) == []


def test_ranks_that_start_anew_are_looked_at_anew() -> None:
    job = Job()
    job.run(10, 12, *[0.05] * 4)
    job.members[1].words = job.members[1].words._replace(pid=900)
    assert job.run(4, 3, *[0.8] * 4) == []


TRAINING = """
import time, torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Tiles(Dataset):
    def __len__(self):
        return 4 * 2 * 260
    def __getitem__(self, at):
        time.sleep(0.001 if at < 4 * 2 * 200 else 0.08)
        return torch.ones(4)

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = Tiles()
for batch in DataLoader(data, 4, sampler=DistributedSampler(data, shuffle=False), num_workers=1):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
    time.sleep(0.03)
dist.destroy_process_group()
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.bars
def test_a_real_job(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    command = [*launcher, "--master_port", str(watched.free_port()), str(script)]
    done = watched.run(command, tmp_path / "out", "--no-history")
    assert done.code == 0, done.stderr
    assert "slow: all ranks wait for data" in done.stderr
    assert (done.verdict["category"], done.verdict["cause"]) == ("slow", "input-bound")
