"""Real incidents of others, where they lie beside the checkout: how often the cause is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.verdict import Verdict

INCIDENTS = Path(os.environ.get("WHICHRANK_SHARED", ROOT.parent / "shared")) / "cases" / "incidents"
FIRST, AMONG, CATEGORY = 0.95, 1.0, 0.95
"""What was reached; the bars are 85 % first and 95 % among verdict and alternatives."""
SURE = 0.7


@pytest.fixture(scope="module")
def answers() -> list[tuple[str, dict, Verdict]]:
    if not INCIDENTS.is_dir():
        pytest.skip("the incidents are not beside this checkout")
    found = []
    for folder in sorted(INCIDENTS.iterdir()):
        truth = yaml.safe_load((folder / "truth.yaml").read_text(encoding="utf-8"))
        found.append((folder.name, truth, diagnose([folder], jobs=1).verdict))
    return found


def right(truth: dict) -> list[str]:
    return [truth["cause"], *truth.get("accept", [])]


def test_the_cause_comes_first(answers):
    wrong = [(name, verdict.cause) for name, truth, verdict in answers if verdict.cause not in right(truth)]
    assert len(wrong) <= len(answers) * (1 - FIRST) + 1e-9, wrong


def test_the_cause_is_at_least_among_the_alternatives(answers):
    missed = [
        (name, verdict.cause)
        for name, truth, verdict in answers
        if not {verdict.cause, *(a.cause for a in verdict.alternatives)} & set(right(truth))
    ]
    assert len(missed) <= len(answers) * (1 - AMONG) + 1e-9, missed


def test_what_was_observed_is_told(answers):
    wrong = [(name, verdict.category) for name, truth, verdict in answers if verdict.category != truth["category"]]
    assert len(wrong) <= len(answers) * (1 - CATEGORY) + 1e-9, wrong


def test_nobody_innocent_is_surely_accused(answers):
    accused = [
        (name, verdict.culprits.ranks)
        for name, truth, verdict in answers
        if verdict.confidence > SURE
        and "culprit_ranks" in truth
        and set(verdict.culprits.ranks) - set(truth["culprit_ranks"] or [])
    ]
    assert accused == []
