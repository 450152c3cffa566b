"""Logs with their truth: runs that finished well after frightening lines, quiet causes, several jobs in a file."""

from __future__ import annotations

import pytest
import yaml

from tests.evidence_at import recorded_cases, unpacked
from whichrank.flows.diagnose.pipeline import diagnose

FOLDERS = [
    *sorted((recorded_cases() / "logs").iterdir()),
    *(f for n in (1, 2, 3) for f in sorted((unpacked(f"logs_round_{n}.tar.xz") / "logs").iterdir()) if f.is_dir()),
]


def truth_of(folder):
    lines = (folder / "truth.yaml").read_text().splitlines()
    return yaml.safe_load("\n".join(line for line in lines if not line.startswith("root_cause")))


@pytest.fixture(scope="module")
def answers():
    return [(f.name, truth_of(f), diagnose([f], jobs=1).verdict) for f in FOLDERS]


def test_the_cause_is_right(answers):
    wrong = [(name, v.cause) for name, t, v in answers if v.cause not in (t["cause"], *t.get("accept", ()))]
    assert len(wrong) <= 8, wrong


def test_what_was_observed_is_right(answers):
    wrong = [(name, v.category) for name, t, v in answers if v.category != t["category"]]
    assert len(wrong) <= 5, wrong


def test_runs_that_finished_well_are_healthy(answers):
    well = [(name, v.cause) for name, t, v in answers if t["cause"] == "healthy"]
    assert len([1 for _, cause in well if cause != "healthy"]) <= 1, well


def test_nobody_innocent_is_accused(answers):
    accused = [
        (name, v.culprits.ranks)
        for name, t, v in answers
        if t.get("culprit_ranks") is not None and set(v.culprits.ranks) - set(t["culprit_ranks"])
    ]
    assert accused == []


def test_no_confident_error(answers):
    wrong = [
        (name, v.cause, v.confidence)
        for name, t, v in answers
        if v.confidence > 0.7 and not {v.cause, *(a.cause for a in v.alternatives)} & {t["cause"], *t.get("accept", ())}
    ]
    assert wrong == []
