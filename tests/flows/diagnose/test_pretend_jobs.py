"""Pretend jobs of many shapes, each with one known fault, through the real reader and the whole of `diagnose`."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.jobs.pretend import Plan
from tests.jobs.pretend_dumps import Written, write
from tests.jobs.pretend_plans import FAULTS, random_plan
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.verdict import Diagnosis


def told(written: Written) -> Diagnosis:
    return diagnose([written.folder], jobs=1)


def judged(plan: Plan, folder: Path, **how: bool) -> tuple[Written, Diagnosis]:
    written = write(plan, folder, **how)
    return written, told(written)


@pytest.mark.parametrize("of_each", [3, pytest.param(8, marks=pytest.mark.bars)])
def test_random_jobs(tmp_path: Path, of_each: int) -> None:
    """Some of every fault: nobody innocent is accused, the culprit is named, and nearly always for the right cause."""
    exact, causes, wrong = 0, 0, []
    count = of_each * len(FAULTS)
    for seed in range(count):
        written, answer = judged(random_plan(seed), tmp_path / str(seed))
        named, guilty = set(answer.verdict.culprits.ranks), set(written.job.culprits)
        exact += named == guilty
        causes += answer.verdict.cause in written.job.causes
        if named - guilty or (named != guilty and not guilty):
            wrong.append((seed, written.job.plan.fault, guilty, named, answer.verdict.summary))
        shutil.rmtree(written.folder)
    assert not wrong
    assert exact >= 0.97 * count
    assert causes >= 0.95 * count


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
@pytest.mark.parametrize("seed", range(4))
def test_a_running_job_is_no_hang(tmp_path: Path, seed: int, backend: str) -> None:
    """Dumps of a healthy job, taken a little apart while it runs."""
    plan = Plan(tp=2 + seed % 2, dp=2, pp=1 + seed % 2, steps=12, eager=seed % 2 == 0 or backend == "gloo", seed=seed)
    _, answer = judged(replace(plan, backend=backend), tmp_path, running=True)
    assert answer.verdict.cause == "healthy", answer.verdict.summary


@pytest.mark.parametrize("culprit", [0, 8])
@pytest.mark.parametrize("fault", ["stuck", "skip", "extra", "swap", "cross", "size", "uneven"])
def test_the_first_and_the_last_rank(tmp_path: Path, fault: str, culprit: int) -> None:
    plan = Plan(tp=3, dp=3, steps=7, eager=culprit == 0, fault=fault, culprit=culprit, pairing="loose", seed=3)
    written, answer = judged(plan, tmp_path)
    assert answer.verdict.culprits.ranks == (culprit,), answer.verdict.summary
    assert answer.verdict.cause in written.job.causes


@pytest.mark.parametrize("fault", ["stuck", "skip", "extra", "alone", "swap", "cross", "size", "dtype", "kernel"])
def test_a_fault_in_the_first_step(tmp_path: Path, fault: str) -> None:
    """Nothing came before it, so only the other ranks show what was due."""
    written, answer = judged(Plan(tp=3, dp=2, steps=5, eager=True, fault=fault, at=0.0, seed=1), tmp_path)
    assert answer.verdict.culprits.ranks == written.job.culprits, answer.verdict.summary


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("fault", ["skip", "size", "uneven"])
def test_several_ranks_take_the_same_branch(tmp_path: Path, fault: str, eager: bool) -> None:
    plan = Plan(tp=4, dp=3, steps=7, eager=eager, fault=fault, culprits=2, pairing="loose", seed=1)
    written, answer = judged(plan, tmp_path)
    assert len(written.job.culprits) == 2
    assert answer.verdict.culprits.ranks == written.job.culprits, answer.verdict.summary


@pytest.mark.parametrize("fault", ["stuck", "skip", "extra", "uneven"])
def test_gloo_with_a_dump_missing(tmp_path: Path, fault: str) -> None:
    """Gloo lists no members, says "scheduled" forever, and records no send or recv."""
    plan = Plan(tp=2, dp=4, steps=7, eager=True, fault=fault, backend="gloo", lose=1, seed=5)
    written, answer = judged(plan, tmp_path)
    assert len(written.lost) == 1
    assert answer.verdict.culprits.ranks == written.job.culprits, answer.verdict.summary


def test_the_culprit_left_no_dump(tmp_path: Path) -> None:
    written, answer = judged(Plan(tp=4, dp=4, fault="stuck", eager=True, lose_culprit=True, seed=2), tmp_path)
    assert answer.verdict.culprits.ranks == written.job.culprits
    assert answer.verdict.cause == "collective-desync"


def test_a_lost_dump_of_an_innocent_hides_nobody(tmp_path: Path) -> None:
    """A rank left its path and another one lost its dump: the one that left is named."""
    plan = Plan(tp=2, dp=2, steps=6, fault="skip", eager=True, culprit=0, lose=2, seed=2)
    written, answer = judged(plan, tmp_path)
    assert answer.verdict.culprits.ranks == written.job.culprits == (0,), answer.verdict.summary


def test_ranks_without_a_dump_are_not_accused_at_random(tmp_path: Path) -> None:
    """The culprit and most of its peers left nothing: better nobody than somebody."""
    plan = Plan(tp=4, dp=2, fault="stuck", eager=True, culprit=5, lose_culprit=True, lose=5, seed=4)
    written, answer = judged(plan, tmp_path)
    assert not set(answer.verdict.culprits.ranks) - set(written.job.culprits), answer.verdict.summary


def test_an_earlier_attempt_in_the_same_folder(tmp_path: Path) -> None:
    """The older dumps show another fault; they are set aside, and said so."""
    write(Plan(fault="stuck", culprit=3, seed=1), tmp_path, prefix="attempt0_rank_")
    written = write(Plan(fault="skip", culprit=1, seed=2), tmp_path, prefix="attempt1_rank_", later_ns=3600 * 10**9)
    answer = told(written)
    assert answer.verdict.culprits.ranks == (1,)
    aside = [source for source in answer.coverage.sources if source.quality == "ignored"]
    assert sorted(source.path.rsplit("/")[-1] for source in aside) == [f"attempt0_rank_{n}" for n in range(4)]
    assert all("earlier run" in source.note for source in aside)


def test_the_same_buffer_twice(tmp_path: Path) -> None:
    """Pickle and JSON of every rank: the pickle has the code lines."""
    plan = Plan(tp=4, dp=1, fault="skip", formats=("pickle", "json"), eager=True, seed=6)
    written, answer = judged(plan, tmp_path)
    assert answer.verdict.culprits.ranks == written.job.culprits
    assert answer.verdict.culprits.code
    assert sum(source.quality == "ignored" for source in answer.coverage.sources) == 4


def test_a_long_ring(tmp_path: Path) -> None:
    """Two thousand entries a rank, the oldest long dropped."""
    plan = Plan(tp=2, dp=2, steps=240, layers=3, fault="skip", eager=True, wrap=2000, at=0.97, seed=8)
    written, answer = judged(plan, tmp_path)
    assert answer.verdict.culprits.ranks == written.job.culprits
    assert answer.verdict.cause in written.job.causes


def test_ranks_in_no_common_group(tmp_path: Path) -> None:
    """Tensor-parallel groups that never meet: one hangs, the others have finished and are no victims."""
    plan = Plan(tp=3, dp=3, buckets=0, apart=True, fault="stuck", culprit=4, eager=True, seed=1)
    _, answer = judged(plan, tmp_path)
    assert answer.verdict.culprits.ranks == (4,)
    assert answer.verdict.victims == (3, 5)


@pytest.mark.parametrize("timing", [True, False])
@pytest.mark.parametrize("eager", [True, False])
def test_a_pipeline_of_three(tmp_path: Path, eager: bool, timing: bool) -> None:
    """The culprit's fault reaches everybody through sends, receives and reductions."""
    plan = Plan(tp=2, dp=2, pp=3, fault="skip", eager=eager, timing=timing, repeat_names=True, seed=2)
    written, answer = judged(plan, tmp_path)
    assert answer.verdict.culprits.ranks == written.job.culprits, answer.verdict.summary
    assert set(answer.verdict.victims) | set(answer.verdict.culprits.ranks) == set(range(12))


def test_a_cycle_carries_its_certificate(tmp_path: Path) -> None:
    written, answer = judged(Plan(tp=4, dp=2, fault="cross", eager=True, seed=3), tmp_path)
    assert answer.verdict.cause == "process-group-order"
    assert answer.verdict.culprits.ranks == written.job.culprits
    links = {link.rank: link for link in answer.verdict.certificate}
    assert set(written.job.culprits) <= set(links)
    assert all(link.holds != link.waits and link.code is not None for link in links.values())
