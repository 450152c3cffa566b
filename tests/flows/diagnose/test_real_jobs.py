"""Real Gloo jobs, hung for real: every rank dumps its recorder while it waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.run import RealJob, run_jobs
from whichrank.flows.diagnose.pipeline import diagnose

TRUTH = {
    RealJob("skip_known"): ((2,), "conditional-collective"),
    RealJob("skip_new"): ((2,), "conditional-collective"),
    RealJob("stuck"): ((2,), "collective-desync"),
    RealJob("swap"): ((2,), "collective-order"),
    RealJob("alone", culprit=0): ((0,), "rank0-only-collective"),
    RealJob("alone", culprit=2): ((2,), "conditional-collective"),
    RealJob("cross"): ((2, 3), "process-group-order"),
    RealJob("cross", world=6, culprit=4): ((4,), "process-group-order"),
    RealJob("uneven"): ((2,), "uneven-inputs"),
    RealJob("straggler"): ((2,), "straggler"),
    RealJob("dtype"): ((2,), "dtype-mismatch"),
    RealJob("healthy"): ((), "healthy"),
}

pytestmark = [pytest.mark.slow, pytest.mark.job]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("jobs")
    run_jobs(list(TRUTH), folder)
    return folder


@pytest.mark.parametrize("job", TRUTH, ids=lambda job: job.name)
def test_real_job(dumps: Path, job: RealJob) -> None:
    ranks, cause = TRUTH[job]
    answer = diagnose([dumps / job.name], jobs=1)
    assert len(list((dumps / job.name).glob("trace_rank_*"))) == job.world
    assert (answer.verdict.culprits.ranks, answer.verdict.cause) == (ranks, cause), answer.verdict.summary
