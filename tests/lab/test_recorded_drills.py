"""NCCL drills, recorded on a GPU with their truth: the verdict on their bundles."""

import tarfile

import pytest

from tests.conftest import ROOT
from whichrank.flows.diagnose import diagnose
from whichrank.lab.truth import Answer, mark, read

ARCHIVE = ROOT / "tests" / "samples" / "drills_nccl.tar.xz"
# What the evidence does not hold, or we do not see in it yet.
MISSED = {
    "group_order": "the pair is named instead of the one: the dumps are without frames",
    "hot_gpu": "the evidence was injected beside that of the real GPU",
    "reduce_op_mismatch": "NCCL's log was taken without the lines of the communicators",
    "uneven_inputs": "told as conditional-collective: the dumps are without frames",
}


def names() -> list[str]:
    with tarfile.open(ARCHIVE) as archive:
        return sorted({name.split("/")[1] for name in archive.getnames() if name.count("/") == 1})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("drills")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    return place / "drills_nccl"


@pytest.mark.parametrize("name", names())
def test_the_verdict_is_the_truth(folder, name):
    truth = read(folder / name / "truth.yaml")
    verdict = diagnose([folder / name / "bundle"], jobs=1).verdict
    outcome = mark(truth, Answer(verdict.cause, tuple(verdict.culprits.ranks)))
    if name in MISSED:
        assert not (outcome.right and outcome.exact), f"{name} is right now: take it off the list"
    else:
        assert (outcome.right, outcome.exact) == (True, True), verdict.summary


def test_hardly_anybody_innocent_is_accused(folder):
    accused = []
    for name in names():
        verdict = diagnose([folder / name / "bundle"], jobs=1).verdict
        if mark(read(folder / name / "truth.yaml"), Answer(verdict.cause, tuple(verdict.culprits.ranks))).accused:
            accused.append(name)
    assert accused == ["group_order"]
