"""NCCL drills, recorded on a GPU with their truth: the verdict on their bundles."""

import tarfile

import pytest

from tests.conftest import ROOT
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.lab.truth import Answer, mark, read

ARCHIVE = ROOT / "tests" / "samples" / "drills_nccl.tar.xz"
# What the evidence does not hold, or we do not see in it yet.
MISSED: dict[str, str] = {}


@pytest.fixture(scope="module")
def marks(tmp_path_factory):
    """Name -> how good the verdict is, and its words."""
    place = tmp_path_factory.mktemp("drills")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    found = {}
    for folder in sorted(path for path in (place / "drills_nccl").iterdir() if path.is_dir()):
        verdict = diagnose([folder / "bundle"], jobs=1).verdict
        answer = Answer(verdict.cause, tuple(verdict.culprits.ranks), verdict.summary)
        found[folder.name] = (mark(read(folder / "truth.yaml"), answer), answer)
    assert found
    return found


def test_the_verdict_is_the_truth(marks):
    wrong = {name: answer for name, (outcome, answer) in marks.items() if not (outcome.right and outcome.exact)}
    assert [(name, answer) for name, answer in wrong.items() if name not in MISSED] == []
    assert [name for name in MISSED if name not in wrong] == [], "right now: take them off the list"


def test_nobody_innocent_is_accused(marks):
    assert [name for name, (outcome, _) in marks.items() if outcome.accused] == []
