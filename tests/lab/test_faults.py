"""Every fault keeps its contract; a representative half of them is drilled for real."""

import ast

import pytest

from tests.together import Together
from whichrank.facts.taxonomy import causes
from whichrank.lab import catalogue, place
from whichrank.lab.drill import drill
from whichrank.lab.workloads import plan as plans

pytestmark = pytest.mark.slow

FAULTS = [catalogue.find(name) for name in catalogue.names()]

# One of each way that a verdict is reached. `make test` plays a few (jobs that are healthy, stall, skip a collective,
# raise or are killed run in tests/run), `make bars` all, `make score` more.
SHORT = ["p2p_cycle", "straggler_steady", "taken_port", "xid_fell_off_bus", "network_drop"]
DRILLED = [
    "p2p_cycle",
    "stall_data_loading",
    "straggler_steady",
    "taken_port",
    "xid_fell_off_bus",
    "network_drop",
    "healthy",
    "skipped_collective",
    "exception",
    "killed",
    "healthy_noisy",
    "extra_collective",
    "swapped_collectives",
    "rank0_only_barrier",
    "uneven_inputs",
    "unused_parameters",
    "group_order",
    "p2p_orphan_recv",
    "size_mismatch",
    "root_mismatch",
    "stall_checkpoint",
    "stall_lock",
    "stall_gil",
    "nan_one_rank",
    "segfault",
    "stopped",
    "never_joins",
    "stale_file_store",
    "too_many_open_files",
    "disk_full",
    "memory_limit",
    "small_shared_memory",
    "misspelt_variable",
    "different_variable",
    "wrong_store_port",
    "aborted",
    "teardown_early",
    "xid_memory_error",
    "infiniband_link_down",
    "firewall_reject",
    "link_down",
    "path_mtu",
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_keeps_its_contract(fault):
    tree = ast.parse(fault.path.read_text(encoding="utf-8"))
    cause = causes()[fault.cause]
    assert fault.summary
    assert fault.category in ("hang", "crash", "slow", "corruption", "config", "healthy")
    assert cause.slug == fault.cause
    for seed in range(5):
        plan = plans.make(fault.name, seed, max(4, fault.least_world))
        ranks = fault.truth(plan).culprit_ranks
        assert ranks is None or all(0 <= rank < plan.world for rank in ranks)
        assert plan == plans.make(fault.name, seed, max(4, fault.least_world))
    # The file is copied into a job that has torch and not this package.
    loaded = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    loaded |= {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert not any(name.split(".")[0] in ("torch", "whichrank", "numpy") for name in loaded)


def test_there_are_more_than_forty_kinds():
    assert len([fault for fault in FAULTS if fault.cause != "healthy"]) >= 40


def test_a_representative_half_is_drilled():
    # Those that only a guard sees have tests of their own.
    drilled = [fault for fault in FAULTS if "gpu" not in fault.needs and not fault.guard]
    possible = [fault.name for fault in drilled if "gloo" in fault.backends]
    assert set(DRILLED) <= set(possible)
    assert len(DRILLED) * 2 >= len(possible)


@pytest.fixture(scope="module")
def drills(request):
    guardian = place.guardian()

    def one(name, _):
        # Seeds and sizes vary with the fault, and are the same in every run.
        fault, number = catalogue.find(name), DRILLED.index(name)
        size = max(fault.least_world, 2 + number % 3)
        outcome = drill(fault, 100 + number, size, launcher="fork", tell=lambda _: None)
        place.tidy(outcome.folder)
        return outcome

    begun = Together(one, [name for name in DRILLED if not catalogue.find(name).lacking()], 3, request)
    yield begun
    begun.close()
    place.tidy_own()
    guardian.stdin.close()
    guardian.wait()


DRILLS = [pytest.param(name, marks=[] if name in SHORT else [pytest.mark.bars]) for name in DRILLED]


@pytest.mark.slow
@pytest.mark.parametrize("name", DRILLS)
def test_the_verdict_of_a_drill_is_the_truth(drills, name):
    lacking = catalogue.find(name).lacking()
    if lacking:
        pytest.skip(f"needs {', '.join(lacking)}")
    outcome = drills[name]
    said = (outcome.answer.cause, set(outcome.answer.ranks), outcome.answer.summary, outcome.notes)
    assert outcome.answer.cause in (outcome.truth.cause, *outcome.truth.accept), said
    if outcome.truth.culprit_ranks is not None:
        assert set(outcome.answer.ranks) == set(outcome.truth.culprit_ranks), said
