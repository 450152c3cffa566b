"""preflight and bench over ssh between hosts of network namespaces: planted faults are found and located, health is not
reported as a fault.
"""

from __future__ import annotations

import json
import sys
import time

import jsonschema
import pytest

from tests.cli.test_preflight import SCHEMA
from tests.preflight.cluster import FAKETIME, READY, Cluster
from tests.preflight.faults import FAULTS, planted, wrong
from whichrank.lab import wires

pytestmark = pytest.mark.skipif(not READY, reason="needs root, ip, nft, tc and sshd")
QUICK = ("blocked_port", "path_mtu", "wrong_name")


@pytest.fixture(scope="module")
def cluster():
    with Cluster(8) as made:
        made.start()
        yield made


@pytest.fixture(scope="module")
def small():
    with Cluster(7) as made:  # as many as the faults name
        made.start()
        yield made


def look(cluster, *words):
    done = cluster.whichrank("preflight", "--format", "json", "--quiet", *words)
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    return document


def test_a_healthy_cluster(small):
    document = look(small)
    assert document["findings"] == []
    assert document["exclude"] == []
    assert len(document["links"]) == 21
    assert {link["state"] for link in document["links"]} == {"healthy"}


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_found_without_loading_anything(small, name):
    with planted(small, FAULTS[name]):
        document = look(small)
    assert wrong(FAULTS[name], document["findings"]) == []


@pytest.mark.bars
@pytest.mark.parametrize("name", FAULTS)
def test_every_planted_fault_is_found_and_located(cluster, name):
    if name == "clock" and FAKETIME is None:
        pytest.skip("libfaketime is not installed")
    began = time.monotonic()
    with planted(cluster, FAULTS[name]):
        document = look(cluster, "--full")
    assert wrong(FAULTS[name], document["findings"]) == []
    assert time.monotonic() - began < 120


@pytest.mark.bars
def test_nothing_is_reported_on_a_healthy_cluster(cluster):
    for _ in range(20):
        assert look(cluster, "--full")["findings"] == []


@pytest.mark.bars
def test_every_pair(cluster):
    document = look(cluster, "--full", "--thorough")
    assert len(document["links"]) == 28
    assert document["findings"] == []


@pytest.mark.bars
def test_a_host_that_is_far_away():
    with Cluster(4, relayed=frozenset({2})) as made:
        made.start()
        wires.delay(made.network, made.host("node3"), 15)
        findings = {finding["code"]: finding["subject"]["hosts"] for finding in look(made)["findings"]}
    assert findings == {"PREF111": ["node3"], "PREF110": ["node3"]}, "its cable takes smaller packets, too"


def test_gloo_between_two_hosts(small):
    """bench through ssh: ranks on two hosts, results from the first."""
    names, small.names = small.names, small.names[:2]
    try:
        done = small.whichrank(
            "bench", "--backend", "gloo", "--nproc-per-node", "1", "--collective", "all_reduce", "--sizes", "64K",
            "--seconds", "0.05", "--quiet", "--format", "json", "--remote-python", sys.executable,
        )  # fmt: skip
    finally:
        small.names = names
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["job"]["hosts"] == ["node1", "node2"]
    assert document["results"][0]["correct"]
