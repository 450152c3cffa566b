"""Random jobs of an independent simulator, where there is one: tools/simulate_fr.py of the shared collection."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evidence_at import SHARED
from whichrank.flows.diagnose.pipeline import diagnose

SIMULATOR = SHARED / "tools" / "simulate_fr.py"
FAULTS = ("none", "stuck", "skip", "extra", "swap", "cross", "orphan")
SHAPES = ((2, 2, 1), (4, 4, 1), (8, 8, 1), (4, 2, 2), (2, 4, 2), (2, 2, 4), (8, 4, 4), (3, 3, 1), (5, 2, 2), (2, 16, 1))

pytestmark = pytest.mark.skipif(not SIMULATOR.exists(), reason="no simulator: WHICHRANK_SHARED has no tools")


def arguments(seed: int) -> list[str]:
    """A shape, a fault and a state of the evidence."""
    rng = random.Random(seed)
    fault = FAULTS[seed % len(FAULTS)]
    tp, dp, pp = rng.choice(SHAPES)
    if fault == "cross" and pp > 2:
        pp = 1  # with three stages the simulator's own programs disagree about the order
    if fault == "orphan":
        pp = max(2, pp)
    given = {"tp": tp, "dp": dp, "pp": pp, "seed": seed, "fault": fault}
    given |= {"steps": rng.choice((4, 6, 10)), "buckets": rng.choice((1, 3))}
    flags = [flag for flag in ("--repeat-names", "--no-timing") if rng.random() < 0.4]
    if rng.random() < 0.3:
        given["wrap"] = rng.choice((30, 60, 100))
    if fault not in ("none", "cross") and rng.random() < 0.25:
        flags.append("--drop-culprit")
    elif fault not in ("none", "cross") and rng.random() < 0.25:
        given["drop"] = 1
    return [word for name, value in given.items() for word in (f"--{name}", str(value))] + flags


@pytest.mark.parametrize("count", [14, pytest.param(140, marks=pytest.mark.bars)])
def test_random_simulations(tmp_path: Path, count: int) -> None:
    exact, accused = 0, 0
    told = []
    for seed in range(count):
        folder = tmp_path / "dumps"
        words = arguments(seed)
        done = subprocess.run(
            [sys.executable, str(SIMULATOR), str(folder), *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        truth = json.loads(done.stdout)
        verdict = diagnose([folder], jobs=1).verdict
        shutil.rmtree(folder)
        guilty, named = set(truth["culprit_ranks"]), set(verdict.culprits.ranks)
        if truth["category"] == "healthy":
            assert verdict.cause == "healthy", (words, verdict.summary)
        exact += named == guilty
        accused += bool(named - guilty)
        if named != guilty:
            told.append((" ".join(words), sorted(guilty), sorted(named), verdict.summary))
    assert exact >= 0.97 * count, told
    assert accused <= 0.01 * count, told
