"""The settings for a purpose: right names for each release, nothing of the user's overwritten."""

from itertools import product

from tests.each import over
from whichrank.facts.variables.environment import catalogue, in_family
from whichrank.facts.variables.purposes import recommended, without_those_set
from whichrank.facts.variables.values import problem
from whichrank.model.settings import FABRICS, PURPOSES

TORCHES = ["2.2.2", "2.5.1", "2.7.1", "2.8.0", "2.10.0", "2.11.0", "2.13.0", "2.15.0", None]
NCCLS = ["2.19.3", "2.22.3", "2.26.2", "2.28.9", "2.32.3", None]


def names(**kwargs):
    return {s.name: s.value for s in recommended(out="/o", **kwargs)}


@over(list(product(PURPOSES, TORCHES, NCCLS)), "{} with torch {} and NCCL {}".format)
def test_only_what_that_version_reads(purpose, torch, nccl):
    from whichrank.facts.variables.environment import renames, version

    for fabric in (*FABRICS, None):
        found = recommended(purpose, out="/o", torch=torch, nccl=nccl, fabric=fabric)
        assert len({s.name for s in found}) == len(found), "a name twice"
        for s in found:
            assert s.reason
            assert s.source
            if not in_family(s.name):
                continue
            variable = catalogue()[s.name]
            at_hand = version((torch if variable.library == "PyTorch" else nccl) or "")
            if at_hand:
                assert not variable.first or at_hand[: len(variable.first)] >= variable.first
                assert not variable.last or at_hand[: len(variable.last)] <= variable.last
            rename = renames().get(s.name)
            if rename and rename.library == "torch" and torch:
                assert version(torch)[:2] < rename.since, f"{s.name} is deprecated in {torch}"
            assert problem(variable, s.value) is None


def test_the_buffers_name_follows_the_release():
    assert names(purpose="production", torch="2.7.1")["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    assert names(purpose="production", torch="2.8.0")["TORCH_FR_BUFFER_SIZE"] == "2000"
    assert "TORCH_FR_BUFFER_SIZE" not in names(purpose="production", torch="2.7.1")
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" not in names(purpose="production", torch="2.8.0")


def test_debug_has_per_process_logs_and_never_detail():
    for torch in TORCHES:
        found = names(purpose="debug", torch=torch)
        assert found["NCCL_DEBUG_FILE"] == "/o/nccl.%h.%p.log"
        assert found["TORCH_DISTRIBUTED_DEBUG"] == "INFO"


def test_no_pipe_where_it_needs_a_deprecated_name():
    assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" not in names(purpose="debug", torch="2.9.1")
    assert names(purpose="debug", torch="2.11.0")["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] == "/o/pipe_"


def test_production_is_quiet():
    found = names(purpose="production", torch="2.13.0", nccl="2.28.9")
    assert found["NCCL_DEBUG"] == "WARN"
    assert "TORCH_NCCL_ENABLE_TIMING" not in found


def test_the_fabric_matters():
    assert names(purpose="production", fabric="efa")["FI_PROVIDER"] == "efa"
    assert "NCCL_SOCKET_IFNAME" not in names(purpose="production", fabric="nvlink")
    assert "NCCL_IB_WARN_RAIL_LOCAL" in names(purpose="debug", nccl="2.28.9", fabric="roce")


def test_what_is_set_stays_under_any_of_its_names():
    settings = recommended("production", out="/o", torch="2.13.0")
    left, kept = without_those_set(settings, {"NCCL_DEBUG": "TRACE", "TORCH_NCCL_TRACE_BUFFER_SIZE": "5"})
    assert {"NCCL_DEBUG", "TORCH_FR_BUFFER_SIZE"} & {s.name for s in left} == set()
    assert sorted(kept) == ["NCCL_DEBUG", "TORCH_NCCL_TRACE_BUFFER_SIZE"]
