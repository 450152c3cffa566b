"""Logs by people who had not seen the rules: one quiet line causes the loud ones, or the run ended well after all."""

from __future__ import annotations

import pytest
import yaml

from tests.evidence_at import unpacked
from whichrank.flows.diagnose.pipeline import diagnose

FOLDERS = sorted((unpacked("logs_quiet.tar.xz") / "logs_quiet").iterdir())
ENDED_ALIKE = {"r19-23-absl-wav2vec-pace"}
"""The cause stands beside what all ranks did in the end."""


@pytest.mark.parametrize("name", [folder.name for folder in FOLDERS])
def test_the_cause_and_nobody_innocent(name):
    folder = next(folder for folder in FOLDERS if folder.name == name)
    truth = yaml.safe_load((folder / "truth.yaml").read_text())
    found = diagnose([path for path in folder.iterdir() if path.name != "truth.yaml"], jobs=1)
    verdict, right = found.verdict, {truth["cause"], *truth["accept"]}
    if name not in ENDED_ALIKE:
        assert verdict.cause in right, verdict.summary
    else:
        assert right & {finding.cause for finding in found.findings}
    listed = {verdict.cause, *(other.cause for other in verdict.alternatives)}
    assert verdict.confidence <= 0.7 or right & listed, verdict.summary
    if truth["culprit_ranks"] is not None:
        assert set(verdict.culprits.ranks) <= set(truth["culprit_ranks"]), verdict.summary
