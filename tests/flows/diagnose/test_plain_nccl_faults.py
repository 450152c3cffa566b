"""Real NCCL jobs that were started with plain torchrun: logs, dumps and stacks as users have them."""

from __future__ import annotations

import json

import pytest

from tests.evidence_at import unpacked
from whichrank.flows.diagnose.pipeline import diagnose

CASES = unpacked("nccl_faults_plain.tar.xz") / "nccl_faults_plain"


@pytest.mark.parametrize("name", sorted(case.name for case in CASES.iterdir()))
def test_the_cause_and_exactly_its_ranks(name):
    truth = json.loads((CASES / name / "truth.json").read_text())
    files = [path for path in (CASES / name).iterdir() if path.name != "truth.json"]
    verdict = diagnose(files).verdict
    assert verdict.cause in (truth["cause"], *truth["accept"]), verdict.summary
    if truth["undecidable"] and not verdict.culprits.ranks:
        assert list(verdict.culprits.candidates) == truth["candidates"], verdict.summary
    elif truth["culprit_ranks"] or truth["cause"] == "healthy":
        assert list(verdict.culprits.ranks) == truth["culprit_ranks"], verdict.summary
