"""Faults that only a guard sees: cause, rank and step named, from the records of the guards alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from whichrank.lab import catalogue

ROOT = Path(__file__).resolve().parent.parent.parent
GUARDED = [name for name in catalogue.names() if catalogue.find(name).guard]
# One of each way to find it; all of them twenty times with `make bars`.
QUICK = ["flipped_bit_parameter", "flipped_bit_gradient", "nan_in_batch", "guarded_reduce_op", "missed_broadcast"]
FROM_THE_START = ("other_learning_rate", "other_schedule", "other_batch_order", "stale_parameter", "missed_broadcast",
                  "other_seed")  # fmt: skip


def runs(names: list[str], seeds: str, world: int = 4, limit_s: float = 300.0) -> list[dict]:
    command = [sys.executable, "-m", "tests.jobs.guarded", ",".join(names), seeds, str(world)]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(outcome: dict) -> None:
    told = f"{outcome['fault']} seed {outcome['seed']}: {outcome['summary']}"
    assert outcome["right"], told
    assert outcome["exact"], told
    if outcome["fault"] not in FROM_THE_START:
        assert outcome["struck"] <= outcome["step"] <= outcome["struck"] + max(outcome["window"], 2), told


def test_every_kind_that_was_asked_for_is_there():
    assert len(GUARDED) >= 12


@pytest.fixture(scope="module")
def outcomes():
    """One of each, and the first of them on two ranks: by one process that imports torch once."""
    return runs([*QUICK, f"{QUICK[0]}@2"], "3")


@pytest.mark.slow
def test_the_rank_and_the_step_are_named(outcomes):
    assert [outcome["fault"] for outcome in outcomes[:-1]] == QUICK
    for outcome in outcomes[:-1]:
        check(outcome)


@pytest.mark.slow
def test_of_two_replicas_the_pair_is_named(outcomes):
    outcome = outcomes[-1]
    assert outcome["cause"] == "replica-divergence"
    assert outcome["ranks"] == []
    assert outcome["candidates"] == [0, 1]


@pytest.mark.bars
@pytest.mark.parametrize("name", GUARDED)
def test_all_of_twenty_runs(name):
    outcomes = runs([name], "0-20", limit_s=1800.0)
    assert len(outcomes) == 20
    for outcome in outcomes:
        check(outcome)
