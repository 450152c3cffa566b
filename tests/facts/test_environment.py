"""The catalogue: every variable has its page, and wrong names lead to right ones."""

import csv
from pathlib import Path

import pytest

from whichrank.facts.variables import environment
from whichrank.facts.variables.environment import (
    catalogue,
    folklore,
    neighbour,
    others,
    page,
    renames,
    same_setting,
    unread,
    version,
)
from whichrank.facts.variables.near_names import nearest

FACTS = Path(environment.__file__).parent


def test_every_variable_of_the_catalogue_has_its_page():
    rows = [row["name"] for name in ("nccl.csv", "torch.csv") for row in csv.DictReader((FACTS / name).open())]
    assert len(rows) > 400
    for name in [*rows, *folklore()]:
        told = page(name)
        assert told is not None, name
        assert set(told) == {"kind", "id", "title", "text", "fix", "sources"}
        assert told["kind"] == "variable"
        assert told["id"] == name
        assert all(told["sources"]), name
        if name in unread():
            assert "Read by: nobody" in told["text"]
            assert told["fix"]
        else:
            for heading in ("Read by:", "Default:", "Values:", "When it is read:", "Across ranks:", "Cost and risk:"):
                assert heading in told["text"], (name, heading)


def test_folklore_is_told_with_what_is_true():
    text = page("TORCH_NCCL_TRACE_BUFFER_SIZE")["text"]
    assert "What is said: A size in bytes" in text
    assert "What is true: A number of entries" in text
    assert "Renamed: TORCH_FR_BUFFER_SIZE since 2.8" in text


def test_a_name_that_nobody_speaks_of_has_no_page():
    assert page("MODEL_PATH") is None


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("NCLL_DEBUG", "NCCL_DEBUG"),
        ("NCCL_DEBGU", "NCCL_DEBUG"),
        ("NCCL_SOCKET_IF_NAME", "NCCL_SOCKET_IFNAME"),
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"),
        ("NCCL_IFNAME_SOCKET", "NCCL_SOCKET_IFNAME"),
        ("NCCL_DISABLE_P2P", "NCCL_P2P_DISABLE"),
        ("GLOO_IFNAME", "GLOO_SOCKET_IFNAME"),
        ("TORCH_FR_BUFER_SIZE", "TORCH_FR_BUFFER_SIZE"),
        ("TORCH_NCCL_DUMP_ON_TIMOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT"),
        ("TORCH_NCCL_TRACE_BUFFERSIZE", "TORCH_FR_BUFFER_SIZE"),
        ("NCCL_ENTIRELY_DIFFERENT", ""),
    ],
)
def test_the_nearest_real_name(wrong, right):
    assert nearest(wrong) == right


NEIGHBOURS = (
    "CUDA_VISIBLE_DEVICES UCX_TLS FI_PROVIDER NVSHMEM_DEBUG OMPI_COMM_WORLD_RANK RCCL_DEBUG HF_HOME SLURM_JOB_ID "
    "OMP_NUM_THREADS NCCL_HOME NCCL_FASTRAK_IFNAME HCCL_SOCKET_IFNAME"
)


@pytest.mark.parametrize("name", NEIGHBOURS.split())
def test_names_of_neighbours_are_known(name):
    assert neighbour(name)


def test_no_neighbour_hides_a_variable_of_the_catalogue():
    assert [name for name in catalogue() if neighbour(name)] == []


def test_renames_point_at_names_that_exist():
    for rename in renames().values():
        assert rename.old in catalogue()
        assert not rename.new or rename.new in catalogue()


def test_two_names_of_one_setting():
    assert same_setting("TORCH_FR_BUFFER_SIZE") == {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}
    assert same_setting("NCCL_DEBUG") == {"NCCL_DEBUG"}


@pytest.mark.parametrize(("text", "parts"), [("2.13.0+cu130", (2, 13, 0)), ("2.8", (2, 8)), ("main", ()), ("", ())])
def test_versions(text, parts):
    assert version(text) == parts


def test_plugins_are_not_gone_because_their_sources_end():
    assert catalogue()["NCCL_INSPECTOR_ENABLE"].until == ""
    assert catalogue()["NCCL_TREE_THRESHOLD"].until == "2.4.8"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("FI_PROVIDERS", "FI_PROVIDER"),
        ("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
        ("OMP_NUM_THREAD", "OMP_NUM_THREADS"),
        ("UCX_NET_DEVICE", "UCX_NET_DEVICES"),
        ("FI_EFA_USE_DEVICE_RMDA", "FI_EFA_USE_DEVICE_RDMA"),
        ("UCX_HOME", ""),
        ("CUDA_ARCHS", ""),
    ],
)
def test_the_nearest_name_of_another_library(wrong, right):
    assert nearest(wrong, 1, others) == right
