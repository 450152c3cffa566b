"""preflight and bench over ssh between hosts of network namespaces: planted faults are found and located, health is not
reported as a fault.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import jsonschema
import pytest

from tests.cli.test_preflight import SCHEMA
from tests.preflight.cluster import FAKETIME, READY, Cluster
from tests.preflight.faults import FAULTS, limit_pair, place_of, planted, wrong
from whichrank.lab import wires
from whichrank.lab.hosts import command, ip

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


def test_three_faults_at_once_are_found_without_loading_anything(small):
    with ExitStack() as stack:
        for name in QUICK:
            stack.enter_context(planted(small, FAULTS[name]))
        found = {(finding["code"], place_of(finding)) for finding in look(small)["findings"]}
    for name in QUICK:
        assert (FAULTS[name].codes[0], FAULTS[name].hosts) in found, found
    assert all(place <= {"node2", "node3", "node5"} for _, place in found), found


def test_names_that_only_ssh_knows_are_not_wrong(small):
    """Aliases of ~/.ssh/config: no job uses them, so nobody must resolve them."""
    config = small.folder / "ssh_config"
    before = config.read_text()
    alias = {f"n{number}": small.host(name).address for number, name in enumerate(small.names[:2])}
    config.write_text("".join(f"Host {name}\n  HostName {address}\n" for name, address in alias.items()) + before)
    names, small.names = small.names, list(alias)
    try:
        document = look(small)
    finally:
        small.names = names
        config.write_text(before)
    assert document["findings"] == []
    assert document["links"] == [{"a": "n0", "b": "n1", "state": "healthy", "why": None}]


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
@pytest.mark.parametrize("number", range(20))
def test_nothing_is_reported_on_a_healthy_cluster(cluster, number):
    assert look(cluster, "--full")["findings"] == []


@pytest.mark.bars
def test_every_pair(cluster):
    document = look(cluster, "--full", "--thorough")
    assert len(document["links"]) == 28
    assert document["findings"] == []


@pytest.mark.bars
def test_one_slow_pair(cluster):
    limit_pair(cluster, "node2", "node7", "40mbit")
    try:
        told = look(cluster, "--thorough")["findings"]
    finally:
        cluster.heal()
    assert [(finding["code"], place_of(finding)) for finding in told] == [("PREF106", {"node2", "node7"})]


def test_hosts_with_ipv6_addresses_only():
    with Cluster(3) as made:
        made.use_ipv6()
        made.start()
        wires.reset_ports(made.host("node2"), "30000-65535")
        document = look(made)
    assert [(f["code"], place_of(f)) for f in document["findings"]] == [("PREF102", {"node2"})]
    assert {(link["a"], link["b"]): link["state"] for link in document["links"]} == {
        ("node1", "node2"): "unhealthy", ("node1", "node3"): "healthy", ("node2", "node3"): "unhealthy",
    }  # fmt: skip


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


@contextmanager
def two_networks():
    """Two hosts with a second cable between them, and a function that sets the speed of both in Mb/s."""
    with Cluster(2) as cluster:
        hosts = [cluster.host(name) for name in cluster.names]
        spaces = [host.namespace for host in hosts]
        ip("link", "add", "eth1", "netns", spaces[0], "type", "veth", "peer", "eth1", "netns", spaces[1])
        for number, space in enumerate(spaces, start=1):
            ip("-n", space, "addr", "add", f"10.78.0.{number}/24", "dev", "eth1")
            ip("-n", space, "link", "set", "eth1", "up")

        def limit(**rates):
            for space in spaces:
                for device, rate in rates.items():
                    command("tc", "-n", space, "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{rate}mbit",
                            "burst", "64kb", "latency", "50ms")  # fmt: skip

        cluster.start()
        while any("state UP" not in ip("-n", space, "link", "show", "eth1") for space in spaces):
            time.sleep(0.05)  # the kernel takes up to a second to notice a cable
        yield cluster, limit


@pytest.fixture(scope="module")
def networks():
    with two_networks() as made:
        yield made


@pytest.mark.bars
@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("advantage", [True, False])
def test_the_sweep_finds_the_faster_network_and_only_that(networks, advantage, number):
    """Ten times an advantage of a quarter, ten times none."""
    cluster, limit = networks
    limit(eth0=160, eth1=200 if advantage else 160)
    done = cluster.whichrank(
        "bench", "--sweep", "--backend", "gloo", "--nproc-per-node", "1", "--collective", "all_reduce", "--sizes",
        "2M", "--seconds", "0.5", "--quiet", "--format", "json", "--remote-python", sys.executable, limit_s=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [trial["settings"] for trial in document["trials"][1:]] == [
        {"GLOO_SOCKET_IFNAME": "eth0"}, {"GLOO_SOCKET_IFNAME": "eth1"},
    ]  # fmt: skip
    assert document["keep_defaults"] == (not document["winner"])
    assert document["winner"] == ({"GLOO_SOCKET_IFNAME": "eth1"} if advantage else {}), json.dumps(document)


@pytest.mark.bars
def test_copies_on_several_hosts(small):
    """N copies started by anything, here one by ssh on each of three hosts: rank 0 tells of all."""
    names = small.names[:3]
    ssh = ["ssh", "-F", str(small.folder / "ssh_config")]
    started = []
    for rank, name in enumerate(names):
        words = f"RANK={rank} WORLD_SIZE=3 MASTER_ADDR={names[0]} {sys.executable} -m whichrank preflight --quiet"
        space = small.host("login").namespace
        started.append(
            subprocess.Popen(
                ["ip", "netns", "exec", space, *ssh, small.host(name).address, f"{words} --format json"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
    said = [copy.communicate(timeout=170) for copy in started]
    document = json.loads(said[0][0])
    assert sorted(host["host"] for host in document["hosts"]) == names
    assert len(document["links"]) == 3
    assert document["findings"] == []
