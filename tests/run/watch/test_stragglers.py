"""Who holds the others up, by how often each rank was found waiting."""

from __future__ import annotations

import random

import pytest

from whichrank.model.last_words import JOINED, Words
from whichrank.run.watch.job_processes import Member
from whichrank.run.watch.slow.stragglers import Straggler, Stragglers
from whichrank.run.watch.slow.verdicts import held_up
from whichrank.worker.waiting import HARDLY, NOW_AND_THEN

LOOK_S = 0.5
BEATS, SELDOM, OFTEN = 1, 2, 5
"""Glances in that time, at a rank whose share of waits is far from a half and at others."""


class Job:
    """Ranks that wait for a share of their time, and a straggler's detector that looks at them."""

    def __init__(self, world: int, seed: int = 0, steps_per_s: float = 2.0) -> None:
        self.random = random.Random(seed)
        self.members = [
            Member(Words(pid=100 + rank, rank=rank, world=world, phase=JOINED, busy_at=f"train.py:{rank} f"), str(rank))
            for rank in range(world)
        ]
        self.found, self.now, self.steps = Stragglers(), 100.0, 0.0
        self.steps_per_s = steps_per_s

    def run(self, seconds: float, *shares: float, silent: tuple[int, ...] = ()) -> list[Straggler]:
        told = []
        for _ in range(int(seconds / LOOK_S)):
            self.now += LOOK_S
            self.steps += LOOK_S * self.steps_per_s
            for member, share in zip(self.members, shares, strict=True):
                mixed = min(share, 1 - share)
                glances = OFTEN if mixed > NOW_AND_THEN else SELDOM if mixed >= HARDLY else BEATS
                glances = 0 if member.rank in silent else glances
                waited = sum(self.random.random() < share for _ in range(glances))
                words = member.words
                member.words = words._replace(
                    looks=words.looks + glances, waits=words.waits + waited, steps=int(self.steps)
                )
            if found := self.found.observe(self.now, self.members):
                told.append(found)
        return told


@pytest.mark.parametrize("seed", range(5))
def test_one_that_hardly_waits_while_all_others_do(seed: int) -> None:
    told = Job(4, seed).run(60, 0.5, 0.5, 0.5, 0.05)
    assert {found.rank for found in told} == {3}
    assert told[0].place == "train.py:3 f"
    assert 0.3 < told[-1].lost < 0.6


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
def test_nobody_among_equals(seed: int, share: float) -> None:
    assert Job(4, seed).run(300, share, share, share, share) == []


def test_not_in_the_first_half_minute_and_not_in_a_few_steps() -> None:
    assert Job(4).run(25, 0.5, 0.5, 0.5, 0.0) == []
    assert Job(4, steps_per_s=0.2).run(60, 0.5, 0.5, 0.5, 0.0) == []


@pytest.mark.parametrize("seed", range(10))
def test_a_job_that_ends_before_half_a_minute_is_judged_by_all_of_it(seed: int) -> None:
    job = Job(3, seed, steps_per_s=0)
    assert job.run(6, 0.9, 0.9, 0.9) == []  # it starts
    job.steps_per_s = 4
    assert job.run(15, 0.45, 0.5, 0.05) == []
    job.found.observe(job.now + 3, job.members[:2])  # one has left before the others
    straggler = job.found.at_the_end()
    assert straggler is not None
    assert straggler.rank == 2
    equal = Job(3, seed, steps_per_s=4)
    equal.run(19, 0.4, 0.4, 0.4)
    assert equal.found.at_the_end() is None


@pytest.mark.parametrize("before_s", [15, 120])
@pytest.mark.parametrize("seed", range(10))
def test_one_that_becomes_slow_shortly_before_the_end(seed: int, before_s: int) -> None:
    job = Job(4, seed, steps_per_s=8)
    assert job.run(before_s, 0.3, 0.3, 0.3, 0.3) == []
    job.steps_per_s = 3  # less than the usual pace, as at the end of a job
    assert job.run(15, 0.7, 0.05, 0.7, 0.7) == []
    straggler = job.found.at_the_end()
    assert straggler is not None
    assert (straggler.rank, straggler.seconds <= 15) == (1, True)


def test_equal_ranks_are_none_at_the_end() -> None:
    for seed in range(60):
        job = Job(4, seed, steps_per_s=8)
        job.run(20, 0.3, 0.3, 0.3, 0.3)
        job.steps_per_s = 4
        job.run(12.5, 0.5, 0.5, 0.5, 0.5)
        assert job.found.at_the_end() is None


def test_a_long_job_is_judged_while_it_runs_only() -> None:
    job = Job(3)
    job.run(30, 0.5, 0.5, 0.05)
    job.run(90, 0.5, 0.5, 0.5)
    assert job.found.at_the_end() is None


def test_it_begins_while_the_job_runs() -> None:
    job = Job(4)
    assert job.run(120, 0.2, 0.2, 0.2, 0.2) == []
    assert {found.rank for found in job.run(45, 0.7, 0.05, 0.7, 0.7)} == {1}


def test_ranks_that_take_turns_are_none() -> None:
    job = Job(4)
    for turn in range(24):
        shares = [0.9] * 4
        shares[turn % 4] = 0.0
        assert job.run(7, *shares) == []


def test_a_pause_of_one_rank_now_and_then_is_none() -> None:
    job = Job(4)
    for _ in range(6):
        assert job.run(26, 0.2, 0.2, 0.2, 0.2) == []
        assert job.run(4, 0.0, 1.0, 1.0, 1.0) == []


def test_two_slow_ones_are_not_one() -> None:
    assert Job(4).run(120, 0.5, 0.5, 0.05, 0.05) == []


def test_ranks_that_follow_others_under_join_say_nothing() -> None:
    job = Job(4)
    job.run(20, 0.2, 0.2, 0.2, 0.2)
    assert job.run(120, 0.2, 0.9, 0.9, 0.9, silent=(1, 2, 3)) == []


def test_a_job_that_was_started_again_is_another() -> None:
    job = Job(2)
    assert job.run(60, 0.6, 0.0)
    job.members[1].words = job.members[1].words._replace(pid=999, looks=0, waits=0)
    assert job.run(20, 0.6, 0.0) == []


def test_the_verdict() -> None:
    (*_, last) = Job(4).run(60, 0.5, 0.5, 0.5, 0.05)
    diagnosis = held_up(last, Job(4).members)
    verdict = diagnosis.verdict
    assert (verdict.category, verdict.cause, verdict.culprits.ranks, verdict.victims) == (
        "slow", "straggler", (3,), (0, 1, 2)
    )  # fmt: skip
    assert (verdict.culprits.code[0].file, verdict.culprits.code[0].line) == ("train.py", 3)
    from whichrank.report import load

    assert "rank 3" in "".join(load("text").render(diagnosis))
    assert '"straggler"' in "".join(load("json").render(diagnosis))


def test_long_pauses_of_one_rank_are_not_a_straggler() -> None:
    job = Job(4)
    told = []
    for _ in range(8):
        told += job.run(4, 0.1, 0.1, 0.1, 0.1)
        job.steps_per_s = 0.0
        told += job.run(12, 0.0, 1.0, 1.0, 1.0)  # rank 0 writes a checkpoint
        job.steps_per_s = 2.0
    assert told == []
