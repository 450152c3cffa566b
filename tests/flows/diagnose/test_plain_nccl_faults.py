"""Real NCCL jobs that were started with plain torchrun: logs, dumps and stacks as users have them."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose

ARCHIVE = Path(__file__).parents[2] / "samples" / "nccl_faults_plain.tar.xz"
with tarfile.open(ARCHIVE) as _archive:
    NAMES = sorted({Path(name).parts[1] for name in _archive.getnames() if len(Path(name).parts) > 1})


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "nccl_faults_plain"


@pytest.mark.parametrize("name", NAMES)
def test_the_cause_and_exactly_its_ranks(cases, name):
    truth = json.loads((cases / name / "truth.json").read_text())
    files = [path for path in (cases / name).iterdir() if path.name != "truth.json"]
    verdict = diagnose(files).verdict
    assert verdict.cause in (truth["cause"], *truth["accept"]), verdict.summary
    if truth["undecidable"] and not verdict.culprits.ranks:
        assert list(verdict.culprits.candidates) == truth["candidates"], verdict.summary
    elif truth["culprit_ranks"] or truth["cause"] == "healthy":
        assert list(verdict.culprits.ranks) == truth["culprit_ranks"], verdict.summary
