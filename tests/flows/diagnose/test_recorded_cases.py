"""The recorded jobs with all their evidence, and with the better part of it taken away."""

from __future__ import annotations

import shutil

import pytest
import yaml

from tests.evidence_at import recorded_cases
from whichrank.flows.diagnose.pipeline import diagnose

CASES = recorded_cases()

JOBS = [
    *(f"nccl_h200/{name}" for name in ("conditional", "dataloader_stall", "exception", "healthy", "missing_rank")),
    *(f"nccl_h200/{name}" for name in ("order_swap", "shape_mismatch", "sigkill")),
    *(f"nccl_h200_single/{name}" for name in ("dup", "healthy", "wd")),
    "fr_gloo_healthy_4rank",
    "fr_gloo_skip_4rank",
]
DUMPS, CALLS, STACKS = "fr_*", "nccl*", "stack*"
# What is left, and the causes that it still allows: the rank has to be right in all of them.
POORER = [
    ("nccl_h200/conditional", [DUMPS], {"conditional-collective"}),
    ("nccl_h200/dataloader_stall", [DUMPS], {"rank-stuck-in-data-loading"}),
    ("nccl_h200/order_swap", [DUMPS], {"collective-order"}),
    ("nccl_h200/conditional", [DUMPS, CALLS], {"conditional-collective", "collective-desync"}),
    ("nccl_h200/dataloader_stall", [DUMPS, CALLS], {"rank-stuck-in-data-loading"}),
    ("nccl_h200/missing_rank", [CALLS], {"missing-rank-at-init"}),
    ("nccl_h200/exception", [CALLS, STACKS], {"gpu-out-of-memory"}),
    ("nccl_h200/sigkill", [CALLS, STACKS], {"rank-killed"}),
    ("nccl_h200/conditional", [DUMPS, CALLS, STACKS], {"conditional-collective", "collective-desync"}),
    ("nccl_h200/dataloader_stall", [DUMPS, CALLS, STACKS], {"collective-desync"}),
    ("nccl_h200/order_swap", [DUMPS, CALLS, STACKS], {"collective-order", "collective-desync"}),
    ("fr_gloo_skip_4rank", [DUMPS], {"conditional-collective", "collective-desync"}),
]


def truth_of(job: str) -> dict:
    return yaml.safe_load((CASES / job / "truth.yaml").read_text())


@pytest.mark.parametrize("job", JOBS)
def test_everything_together_names_rank_and_cause(job):
    truth, answer = truth_of(job), diagnose([CASES / job])
    assert answer.verdict.cause == truth["cause"], answer.verdict.summary
    assert list(answer.verdict.culprits.ranks) == truth["culprit_ranks"]
    assert answer.verdict.category == truth["category"]


@pytest.mark.parametrize(("job", "without", "causes"), POORER)
def test_poorer_evidence_still_names_the_rank(job, without, causes, tmp_path):
    folder = tmp_path / "job"
    shutil.copytree(CASES / job, folder, ignore=shutil.ignore_patterns(*without))
    verdict = diagnose([folder]).verdict
    assert list(verdict.culprits.ranks) == truth_of(job)["culprit_ranks"], verdict.summary
    assert verdict.cause in causes, verdict.summary


def test_the_stacks_of_a_hang_are_put_together():
    standings = diagnose([CASES / "nccl_h200/dataloader_stall"]).standings
    assert [(row.place, row.ranks) for row in standings] == [
        ("train_lm.py:90 in main", (0, 2, 3)),
        ("train_lm.py:22 in fetch_remote_shard", (1,)),
    ]


def test_a_healthy_job_without_its_dumps_is_not_accused(tmp_path):
    folder = tmp_path / "job"
    shutil.copytree(CASES / "nccl_h200/healthy", folder, ignore=shutil.ignore_patterns(DUMPS))
    assert diagnose([folder]).verdict.cause == "healthy"


def test_ras_alone_accuses_nobody():
    """Its counts differ for a moment in every running job."""
    verdict = diagnose([CASES / "nccl_h200/dataloader_stall/ras.txt"]).verdict
    assert verdict.culprits.ranks == ()
