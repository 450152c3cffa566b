"""Hosts of network namespaces and what can be done to their cables, tried with real packets."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from whichrank.evidence.collectors import processes
from whichrank.lab import catalogue, place, wires
from whichrank.lab.hosts import LabError, Network, command, ip, ranks_beside
from whichrank.lab.workloads import plan as plans

pytestmark = pytest.mark.skipif(not catalogue.NEEDS["namespaces"](), reason="needs root, ip, nft and tc")

# Sends to a small server on another host, as often as told; prints what came back and how long the first took.
PROBE = """
import socket, sys, threading, time
from whichrank.lab.workloads.host import join_network

one, other, address, octets, times, timeout = sys.argv[1:7]
ready = threading.Event()

def serve():
    join_network(other)
    listener = socket.create_server((address, 7777))
    ready.set()
    while True:
        peer, _ = listener.accept()
        threading.Thread(target=echo, args=(peer,), daemon=True).start()

def echo(peer):
    while data := peer.recv(1 << 16):
        peer.sendall(data)

threading.Thread(target=serve, daemon=True).start()
ready.wait()
join_network(one)
answered, least = 0, None
try:
    client = socket.create_connection((address, 7777), timeout=float(timeout))
    for _ in range(int(times)):
        began, got = time.monotonic(), 0
        client.sendall(bytes(int(octets)))
        while got < int(octets):
            got += len(client.recv(1 << 16))
        answered += 1
        took = time.monotonic() - began
        least = took if least is None else min(least, took)
    print(answered, least)
except OSError as error:
    print(answered, type(error).__name__, error.errno)
"""


@pytest.fixture
def network():
    folder = place.make()
    with Network(folder, ["node1", "node2", "node3"], mtu=9000, relayed=frozenset({2})) as made:
        yield made
    place.tidy(folder)
    assert not list(Path("/run/netns").glob(f"*{place.name_of(folder)}*"))


def probe(network, one=0, other=1, octets=100, times=1, timeout=10.0):
    """How many were answered, and the least time that one took; or what went wrong."""
    hosts = network.hosts
    words = [hosts[one].namespace, hosts[other].namespace, hosts[other].address, octets, times, timeout]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *map(str, words)], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.split()


def answered(network, **how) -> bool:
    return probe(network, **how)[0] == "1"


def silent(network, **how) -> bool:
    return probe(network, timeout=1.0, **how)[0] == "0"


def test_hosts_reach_each_other(network):
    assert answered(network)
    assert answered(network, octets=200_000)
    assert answered(network, one=0, other=2)
    assert wires.hits(network) == 0


def test_drop_cuts_off_one_host_and_no_other(network):
    wires.drop(network, network.hosts[0])
    assert silent(network)
    assert answered(network, one=1, other=2)
    assert wires.hits(network) > 0


def test_drop_between_two_leaves_the_third(network):
    wires.drop(network, network.hosts[0], network.hosts[1])
    assert silent(network)
    assert answered(network, one=0, other=2)


def test_one_way(network):
    assert answered(network)  # the hosts know each other's hardware addresses
    wires.one_way(network, network.hosts[0])
    assert silent(network)
    seen = ip("-n", network.hosts[0].namespace, "-s", "link", "show", "eth0")
    assert wires.hits(network) > 0, seen


def test_only_large_packets_vanish(network):
    wires.shrink_path_mtu(network, network.hosts[0], 1514)
    assert answered(network, octets=1000)
    assert silent(network, octets=200_000)


def test_closed_and_rejected_ports(network):
    wires.close_ports(network.hosts[1], "7777")
    assert probe(network, timeout=1.0)[1] == "TimeoutError"
    assert answered(network, one=1, other=0)  # what it opens itself is answered
    wires.reject_ports(network.hosts[0], "7777")
    assert probe(network, one=1, other=0)[2] == "113"


def test_loss(network):
    wires.lose(network, network.hosts[0], 20)
    probe(network, octets=1000, times=50)
    assert wires.hits(network) > 3


def test_limit(network):
    free = float(probe(network, octets=400_000, times=10)[1])
    wires.limit(network, network.hosts[0], "20mbit")
    limited = float(probe(network, octets=400_000)[1])
    assert limited > 0.08 > free


def test_a_link_goes_down_and_comes_back(network):
    def state():
        return ip("-n", network.hosts[0].namespace, "-o", "link", "show", "eth0")

    assert "state UP" in state()
    wires.link_down(network, network.hosts[0])
    assert "LOWERLAYERDOWN" in state() or "state DOWN" in state()
    assert silent(network)
    wires.link_up(network, network.hosts[0])
    assert answered(network)


def test_delay(network):
    quick = float(probe(network, one=0, other=2, times=10)[1])
    wires.delay(network, network.hosts[2], 40)
    time.sleep(0.1)
    slow = float(probe(network, one=0, other=2)[1])
    assert slow > 0.079 > quick


def test_ranks_fill_hosts_one_after_the_other():
    plan = plans.make("network_drop", 1, 8)
    assert [ranks_beside(plan, rank) for rank in (0, 3, 7)] == [[0, 1], [2, 3], [6, 7]]
    assert ranks_beside(plans.make("network_drop", 1, 3), 2) == [2]


def test_a_step_that_fails_says_so():
    with pytest.raises(LabError, match="no-such-namespace"):
        ip("-n", "no-such-namespace", "link")
    with pytest.raises(LabError, match="no-such-program"):
        command("no-such-program")


def test_what_a_dead_drill_left_is_swept():
    """Killed in the middle: its namespaces and its relay go with the next sweep."""
    program = (
        "import os, signal\nfrom whichrank.lab import place\nfrom whichrank.lab.hosts import Network\n"
        "folder = place.make()\nNetwork(folder, ['a', 'b'], relayed=frozenset({1})).up()\n"
        "print(folder, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    folder = Path(done.stdout.strip())
    assert folder.parent == Path(tempfile.gettempdir())
    assert list(Path("/run/netns").glob(f"*{place.name_of(folder)}*"))
    assert folder in place.sweep()
    assert not list(Path("/run/netns").glob(f"*{place.name_of(folder)}*"))
    assert not folder.exists()
    assert not [pid for pid in processes.everybody() if str(folder) in processes.environ(pid).values()]
