"""RDMA bandwidth by perftest: helpers of several hosts on this machine, and a program in place of ib_write_bw."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest

from tests.conftest import command_environment
from whichrank.evidence.probes.between import perftest
from whichrank.fleet.engines import Engine
from whichrank.fleet.host_helpers import host_helpers
from whichrank.flows.preflight import check as preflight
from whichrank.flows.preflight import rdma
from whichrank.records.inspection import HostProbes, Inspection

PROGRAMS = Path(__file__).parents[1] / "preflight/programs"
HOSTS = [f"n{number}" for number in range(6)]
RAILS = ("mlx5_0", "mlx5_1")
PORT = {"port": 1, "state": "ACTIVE", "rate": "400 Gb/sec (4X NDR)", "layer": "InfiniBand"}


def findings(tmp_path, speeds, *, thorough=False):
    """What preflight says where these adapters have these speeds."""
    (tmp_path / "speeds").write_text("".join(f"{device} {host} {gbits}\n" for device, host, gbits in speeds))
    path = f"{PROGRAMS}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    given = {**command_environment(), "PATH": path, "RDMA_SPEEDS": f"{tmp_path}/speeds"}
    words = [f"{name}={given[name]}" for name in ("PATH", "PYTHONPATH", "RDMA_SPEEDS") if name in given]
    engine = Engine("test", tuple(HOSTS), lambda host, command: ["env", *words, f"RDMA_HOST={host}", *command])
    ports = {host: dict.fromkeys(RAILS, PORT) for host in HOSTS}
    ways = dict.fromkeys(permutations(HOSTS, 2), "127.0.0.1")
    with host_helpers(engine, [sys.executable, *preflight.AGENT]) as everyone:
        rates, blamed = rdma.measure(everyone, ports, ways, thorough=thorough)
    inspection = Inspection([HostProbes(host) for host in HOSTS], rdma_rates=rates, rdma_slow=blamed)
    told = preflight.judge(inspection)
    return [f for f in told.findings if f.code in ("PREF112", "PREF113")], rates


@pytest.mark.job
def test_healthy_adapters(tmp_path):
    told, rates = findings(tmp_path, [])
    assert told == []
    assert {rate.device for rate in rates} == set(RAILS)
    assert {rate.gbits for rate in rates} == {390.0}


@pytest.mark.job
def test_a_slow_adapter_and_one_that_reaches_nobody(tmp_path):
    told, _ = findings(tmp_path, [("mlx5_1", "n4", 97.0), ("mlx5_0", "n2", 0)])
    assert {(f.code, f.subject.hosts) for f in told} == {("PREF112", ("n4",)), ("PREF113", ("n2",))}
    slow = next(f for f in told if f.code == "PREF112")
    assert slow.message.startswith("Slow RDMA: mlx5_1: 97.0 Gb/s where 390.0 Gb/s is usual, the port has 400 Gb/s, n4")
    lost = next(f for f in told if f.code == "PREF113")
    assert "Failed status 12" in lost.evidence[0].quote


@pytest.mark.bars
def test_every_pair(tmp_path):
    told, rates = findings(tmp_path, [("mlx5_0", "n5", 60.0)], thorough=True)
    assert [(f.code, f.subject.hosts) for f in told] == [("PREF112", ("n5",))]
    assert len(rates) == 2 * 2 * 15


# Constructed in the form of perftest 4.4 (MB/sec), 5.x (rows of several sizes) and 6.x (MiB/sec, both ports, CPU).
OLD = """\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 2          5000             11.38              10.90              5.715
 65536      5000             11511.22           11508.75           0.184140
---------------------------------------------------------------------------------------
"""
PORTS = """\
 Mtu             : 2048[B]
 #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]   BW Port1[MiB/sec]   CPU_Util[%]
 65536      600000           0.00               22000.00             0.352000        11000.00            3.10
"""


@pytest.mark.parametrize(
    ("said", "gbits"), [(OLD, 96.542), (PORTS, 184.549), (OLD[: OLD.index(" 65536")], 0.091), ("", None)]
)
def test_tables_by_their_heading(said, gbits):
    assert perftest.read(said)["gbits"] == gbits


def test_the_reason_of_a_failure():
    assert perftest.read("", "Couldn't connect to 10.0.0.1:18515")["why"] == "Couldn't connect to 10.0.0.1:18515"
    assert "Failed to modify QP" in perftest.read(" local address: LID 1\n Failed to modify QP 1 to RTR\n")["why"]
    assert perftest.read(PORTS)["mtu"] == 2048


def test_the_command_line():
    """Both sides must share their options, and a duration must be longer than two margins."""
    test = {"device": "mlx5_2", "ib_port": 1, "gid": 3}
    words = perftest.words(test, 18600)
    assert words[words.index("-x") + 1] == "3"
    assert int(words[words.index("-D") + 1]) > 2 * int(words[words.index("-f") + 1])
    assert "-x" not in perftest.words({"device": "mlx5_2", "gid": None}, 18600)


@pytest.mark.skipif(not perftest.installed(), reason="perftest is not installed")
def test_the_real_program_knows_these_options():
    """Without an adapter it gets no further than looking for one; an option that it doesn't know ends it earlier."""
    done = subprocess.run(
        [*perftest.words({"device": "no_such_0", "gid": 3}, 18600), "127.0.0.1"], capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert "device" in done.stdout + done.stderr
    assert "invalid option" not in done.stderr.lower()
    assert "unrecognized" not in done.stderr.lower()
