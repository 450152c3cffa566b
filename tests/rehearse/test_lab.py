"""The code faults of the lab, rehearsed: the cause and the culprits that the drill's verdict must name, too."""

from __future__ import annotations

import pytest

from whichrank.lab import catalogue, place
from whichrank.lab.setup import prepare
from whichrank.lab.truth import Truth
from whichrank.lab.workloads import plan as plans
from whichrank.lab.workloads.plan import FOLDER
from whichrank.rehearse.rehearse import Options, Outcome, rehearse

CODE_FAULTS = (
    "dtype_mismatch", "ends_before_join", "exception", "extra_collective", "group_order", "invalid_collective_call",
    "never_joins", "p2p_cycle", "p2p_orphan_recv", "p2p_orphan_send", "rank0_only_barrier", "rank0_only_save",
    "reduce_op_mismatch", "root_mismatch", "root_mismatch_silent", "size_mismatch", "skipped_collective",
    "swapped_collectives", "teardown_early", "uneven_inputs", "unused_parameters", "unused_parameters_everywhere",
)  # fmt: skip
WORLD = 8


def rehearsed(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Outcome, Truth]:
    fault = catalogue.find(name)
    folder = place.make()
    try:
        setup = prepare(folder, fault, plans.make(name, 1, WORLD, "gloo"), "torchrun")
        monkeypatch.setenv(FOLDER, str(folder))
        outcome = rehearse(Options(folder / "code" / "train.py", world=WORLD, explorations=0))
        return outcome, fault.truth(setup.plan)
    finally:
        place.tidy(folder)


@pytest.mark.job
@pytest.mark.bars
@pytest.mark.parametrize("name", CODE_FAULTS)
def test_code_faults_are_found(name, monkeypatch):
    outcome, truth = rehearsed(name, monkeypatch)
    assert [finding.cause for finding in outcome.findings][:1] in [[cause] for cause in (truth.cause, *truth.accept)]
    if truth.culprit_ranks is not None:
        assert outcome.findings[0].subject.ranks == truth.culprit_ranks


@pytest.mark.job
@pytest.mark.bars
@pytest.mark.parametrize("name", ["healthy", "healthy_noisy"])
def test_healthy_workloads_are_left_alone(name, monkeypatch):
    outcome, _ = rehearsed(name, monkeypatch)
    assert outcome.rehearsed, outcome.reason
    assert not outcome.findings
