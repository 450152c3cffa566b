"""NCCL drills, recorded on a GPU with their truth: the verdict on their bundles."""

import tarfile

import pytest

from tests.conftest import ROOT
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.lab.truth import Answer, mark, read

ARCHIVE = ROOT / "tests" / "samples" / "drills_nccl.tar.xz"
# What the evidence does not hold, or we do not see in it yet.
MISSED: dict[str, str] = {}


def names() -> list[str]:
    with tarfile.open(ARCHIVE) as archive:
        return sorted({name.split("/")[1] for name in archive.getnames() if name.count("/") == 1})


@pytest.fixture(scope="module")
def marks(tmp_path_factory):
    """Name -> how good the verdict is, and its words."""
    place = tmp_path_factory.mktemp("drills")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    found = {}
    for name in names():
        folder = place / "drills_nccl" / name
        verdict = diagnose([folder / "bundle"], jobs=1).verdict
        answer = Answer(verdict.cause, tuple(verdict.culprits.ranks), verdict.summary)
        found[name] = (mark(read(folder / "truth.yaml"), answer), answer)
    return found


@pytest.mark.parametrize("name", names())
def test_the_verdict_is_the_truth(marks, name):
    outcome, answer = marks[name]
    if name in MISSED:
        assert not (outcome.right and outcome.exact), f"{name} is right now: take it off the list"
    else:
        assert (outcome.right, outcome.exact) == (True, True), answer


def test_nobody_innocent_is_accused(marks):
    assert [name for name, (outcome, _) in marks.items() if outcome.accused] == []
