"""Bundles that were taken of NCCL jobs on a GPU: the verdict now is the verdict then."""

from __future__ import annotations

import pytest

from tests.evidence_at import SAMPLES
from whichrank.flows.diagnose import diagnose


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory):
    import tarfile

    folder = tmp_path_factory.mktemp("run_nccl")
    with tarfile.open(SAMPLES / "run_nccl.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "run_nccl"


@pytest.mark.parametrize(
    ("fault", "cause", "ranks"),
    [
        ("data", "rank-stuck-in-data-loading", (2,)),
        ("cross", "process-group-order", (2, 3)),
        ("sigstop", "rank-frozen", (2,)),
        ("exception", "rank-exception", (2,)),
    ],
)
def test_the_verdict(bundles, fault, cause, ranks):
    verdict = diagnose([bundles / fault], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == (cause, ranks), verdict.summary
