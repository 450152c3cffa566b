"""Recorded hangs and healthy runs, told by their flight-recorder dumps alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tests.evidence_at import SAMPLES, SHARED
from whichrank.flows.diagnose.pipeline import diagnose

CASES = sorted(
    truth.parent
    for pattern in ("nccl_h200/*/truth.yaml", "nccl_h200_single/*/truth.yaml", "fr_gloo_*/truth.yaml")
    for truth in (SHARED / "cases").glob(pattern)
    if list(truth.parent.glob("fr_*"))
)
# Where a rank is, dumps can't say: they say that it has not come.
NOT_IN_DUMPS = "rank-stuck-in-"


@pytest.mark.skipif(not CASES, reason="WHICHRANK_SHARED has no recorded cases")
def test_recorded_cases(tmp_path: Path) -> None:
    for case in CASES:
        folder = tmp_path / case.parent.name / case.name
        folder.mkdir(parents=True)
        for dump in case.glob("fr_*"):
            shutil.copy2(dump, folder)
        truth = yaml.safe_load((case / "truth.yaml").read_text(encoding="utf-8"))
        verdict = diagnose([folder], jobs=1).verdict
        accepted = {truth["cause"], *truth.get("accept", ())}
        if truth["cause"].startswith(NOT_IN_DUMPS):
            accepted.add("collective-desync")
        assert (case.name, sorted(verdict.culprits.ranks)) == (case.name, truth["culprit_ranks"])
        assert verdict.cause in accepted, (case.name, verdict.summary)


@pytest.mark.parametrize(
    ("name", "ranks", "cause"),
    [
        ("nccl_dataloader_stall", (1,), "collective-desync"),
        ("nccl_order_swap", (1,), "collective-order"),
        ("nccl_single", (), "healthy"),
    ],
)
def test_samples(name: str, ranks: tuple[int, ...], cause: str) -> None:
    answer = diagnose([SAMPLES / "flight_recorder" / name], jobs=1)
    assert (answer.verdict.culprits.ranks, answer.verdict.cause) == (ranks, cause)


def test_two_of_four_dumps() -> None:
    """Rank 2 skipped a reduction; of its victims only rank 0 left a dump."""
    answer = diagnose([SAMPLES / "flight_recorder" / "gloo_skip"], jobs=1)
    assert answer.verdict.culprits.ranks == (2,)
    assert answer.verdict.cause == "conditional-collective"
    assert any("sync_grads" in str(place) for place in answer.verdict.culprits.code)


@pytest.mark.parametrize("missing", range(4))
@pytest.mark.parametrize(("name", "culprit"), [("nccl_dataloader_stall", 1), ("nccl_order_swap", 1)])
def test_nobody_else_is_accused_when_a_dump_is_missing(tmp_path: Path, name: str, culprit: int, missing: int) -> None:
    for rank in range(4):
        if rank != missing:
            shutil.copy2(SAMPLES / "flight_recorder" / name / f"fr_{rank}", tmp_path)
    named = diagnose([tmp_path], jobs=1).verdict.culprits.ranks
    assert named in ((culprit,), ()) if missing == culprit else named == (culprit,)
