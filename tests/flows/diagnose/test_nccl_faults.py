"""Real NCCL jobs with one known fault each, recorded on a GPU: the whole evidence, and the dumps alone."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest
import yaml

from whichrank.flows.diagnose.pipeline import diagnose

ARCHIVE = Path(__file__).parents[2] / "samples" / "nccl_faults.tar.gz"
with tarfile.open(ARCHIVE) as _archive:
    NAMES = sorted({Path(name).parts[1] for name in _archive.getnames() if len(Path(name).parts) > 1})
# What the flight recorder alone can't tell: roots and operators are not in it, and a rank that issues nothing more
# shows no reason.
ONLY_IN_LOGS = ("root_4_2", "reduce_op_4_3")
SILENT = {
    "rank-stuck-in-checkpoint",
    "gpu-kernel-stuck",
    "rank-frozen",
    "rank-exception",
    "rank-native-crash",
    "cuda-device-assert",
    "teardown-hang",
}


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "nccl_faults"


def truth_of(folder: Path) -> dict:
    return yaml.safe_load((folder / "truth.yaml").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_all_evidence_names_the_rank_and_the_cause(cases, name):
    truth = truth_of(cases / name)
    verdict = diagnose([cases / name]).verdict
    assert list(verdict.culprits.ranks) == truth["culprit_ranks"], verdict.summary
    assert verdict.cause in (truth["cause"], *truth["accept"]), verdict.summary


@pytest.mark.parametrize("name", NAMES)
def test_dumps_alone_accuse_nobody_else(cases, name, tmp_path):
    truth = truth_of(cases / name)
    dumps = sorted((cases / name).glob("fr_*"))
    if not dumps:
        pytest.skip("this fault left no dump")
    for dump in dumps:
        shutil.copy(dump, tmp_path)
    verdict = diagnose([tmp_path]).verdict
    if name in ONLY_IN_LOGS:
        assert verdict.cause == "healthy"
        return
    assert set(verdict.culprits.ranks) <= set(truth["culprit_ranks"]), verdict.summary
    causes = (truth["cause"], *truth["accept"], *(["collective-desync"] if truth["cause"] in SILENT else []))
    assert verdict.cause in causes, verdict.summary
