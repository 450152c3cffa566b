"""Probes on this machine, on trees of others, and on programs that never answer."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import command_environment
from tests.preflight import trees
from whichrank.evidence.probes import Absent, Missing, Place, _child, discover, memory
from whichrank.evidence.probes.between import iperf, server
from whichrank.model.preflight import Launch

PROBES = discover()
SOFTWARE = """
import json
from whichrank.evidence.probes import Place, software
print(json.dumps(software.measure(Place())["nccl"]))
"""


def run(place, *names):
    return _child.bounded({n: (partial(PROBES[n].measure, place), PROBES[n].LIMIT_S) for n in names or PROBES})


def test_every_probe_answers_here_in_plain_json():
    answers = run(Place(launch=Launch(folders=("/tmp",))))
    assert answers.keys() == PROBES.keys()
    for name, answer in answers.items():
        assert not answer.timed_out, name
        assert "failed" not in answer.why, (name, answer.why)
        assert (answer.value is None) == bool(answer.why), name
        json.dumps(answer.value)


@pytest.mark.parametrize("name", PROBES)
def test_every_probe_keeps_the_contract(name):
    probe = PROBES[name]
    assert name == probe.NAME
    assert 0 < probe.LIMIT_S <= 60
    assert probe.__doc__


def test_a_child_that_hangs_costs_its_limit_and_no_more():
    began = time.monotonic()
    answers = _child.bounded({"stuck": (lambda: time.sleep(60), 0.5), "quick": (lambda: 1, 5.0)})
    assert time.monotonic() - began < 30
    assert answers["stuck"].timed_out
    assert "timed out after" in answers["stuck"].why
    assert answers["quick"].value == 1


def test_a_child_may_crash_raise_or_lack_what_it_looks_for():
    def absent():
        raise Absent("no such device")

    def missing():
        raise Missing("may not be read")

    work = {
        "crash": (lambda: os._exit(3), 5.0),
        "error": (lambda: 1 / 0, 5.0),
        "absent": (absent, 5.0),
        "missing": (missing, 5.0),
    }
    answers = _child.bounded(work)
    assert answers["crash"].why == "the probe crashed before it could answer"
    assert "ZeroDivisionError" in answers["error"].why
    assert answers["absent"].absent
    assert not answers["missing"].absent


def test_a_wedged_nvidia_smi_is_reported_as_such(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(PROBES["gpus"], "_ASK_S", 0.5)
    answer = run(Place(), "gpus")["gpus"]
    assert answer.took_s < PROBES["gpus"].LIMIT_S
    assert "no answer" in answer.value["trouble"]


def test_a_recorded_machine(tmp_path):
    place = Place(trees.machine(tmp_path))
    answers = run(place, "gpus", "pci", "rdma", "limits", "cpu", "memory", "kernel_log", "software")
    assert {n: a.why for n, a in answers.items() if a.why} == {}
    gpus = answers["gpus"].value
    assert [g["index"] for g in gpus["gpus"]] == list(range(8))
    assert len(gpus["pci"]) == 8
    assert gpus["gpus"][3]["values"]["name"] == "NVIDIA H200"
    pci = answers["pci"].value
    assert len(pci["devices"]) == 16
    assert pci["devices"][0]["path"] == ["0000:40:00.0"]
    assert pci["acs_readable"]
    assert not pci["iommu_translates"]
    assert pci["modules"] == ["nvidia_peermem"]
    ports = answers["rdma"].value["ports"]
    assert len(ports) == 8
    assert ports[0]["rate"] == "400 Gb/sec (4X NDR)"
    assert answers["limits"].value["memlock"] == -1
    assert answers["cpu"].value["allowed_count"] == 192
    assert answers["software"].value["versions"]["driver"] == "580.159.04"


@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("ldd"), reason="needs a compiler")
def test_the_linker_says_which_nccl_is_loaded(tmp_path, monkeypatch):
    """A torch whose library wants libnccl.so.2: its own by RPATH, and another one by LD_PRELOAD."""
    for folder, version in (("site/nvidia/nccl/lib", "2.28.9"), ("opt", "2.18.5")):
        (tmp_path / folder).mkdir(parents=True)
        source = f'const char *words = "NCCL version {version}+cuda12.4";'
        library = tmp_path / folder / "libnccl.so.2"
        command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=source, text=True, check=True)
    own = tmp_path / "site/nvidia/nccl/lib"
    (tmp_path / "site/torch/lib").mkdir(parents=True)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wl,--no-as-needed", "-Wl,--disable-new-dtags", f"-Wl,-rpath,{own}", "-x", "c",
         "-", "-x", "none", str(own / "libnccl.so.2"), "-o", str(tmp_path / "site/torch/lib/libtorch_cuda.so")],
        input="int nothing;", text=True, check=True,
    )  # fmt: skip
    for package in ("torch", "nvidia", "nvidia/nccl"):
        (tmp_path / "site" / package / "__init__.py").write_text("")
    found = subprocess.run(
        [sys.executable, "-c", SOFTWARE], capture_output=True, text=True, check=True,
        env={**command_environment(), "PYTHONPATH": f"{tmp_path}/site:{command_environment()['PYTHONPATH']}"},
    )  # fmt: skip
    first, *_ = json.loads(found.stdout)
    assert (first["version"], first["origin"], first["loaded"]) == ("2.28.9", "torch", True)
    found = subprocess.run(
        [sys.executable, "-c", SOFTWARE], capture_output=True, text=True, check=True,
        env={**command_environment(), "PYTHONPATH": f"{tmp_path}/site:{command_environment()['PYTHONPATH']}",
             "LD_PRELOAD": f"{tmp_path}/opt/libnccl.so.2"},
    )  # fmt: skip
    first, *_ = json.loads(found.stdout)
    assert (first["version"], first["origin"], first["loaded"]) == ("2.18.5", "LD_PRELOAD", True)


def test_control_groups_of_both_versions(tmp_path):
    trees.write(tmp_path, "proc/self/cgroup", "0::/kubepods/pod1\n")
    trees.write(tmp_path, "sys/fs/cgroup/kubepods/pod1/cpu.max", "150000 100000\n")
    trees.write(tmp_path, "sys/fs/cgroup/kubepods/cpu.max", "max 100000\n")
    trees.write(tmp_path, "sys/fs/cgroup/kubepods/pod1/memory.max", "8589934592\n")
    trees.write(tmp_path, "sys/fs/cgroup/kubepods/pod1/memory.current", "8000000000\n")
    found = PROBES["limits"].measure(Place(tmp_path))
    assert found["cpu_quota"] == 1.5
    assert found["memory_left"] == 589934592
    old = tmp_path / "old"
    trees.write(old, "proc/self/cgroup", "4:cpu,cpuacct:/docker/a\n3:memory:/docker/a\n")
    trees.write(old, "sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us", "20000\n")
    trees.write(old, "sys/fs/cgroup/cpu/docker/a/cpu.cfs_period_us", "100000\n")
    assert PROBES["limits"].measure(Place(old)).items() >= {"cpu_quota": 0.2, "memory_hidden": "/docker/a"}.items()
    assert "cpu_hidden" not in PROBES["limits"].measure(Place(old))


def test_segments_are_stale_only_if_nobody_has_them(tmp_path):
    old = time.time() - 3600
    for name in ("nccl-AbCdEf", "torch_123_456", "mine.txt", "nccl-mapped"):
        (tmp_path / name).write_bytes(b"x" * 100)
    for file in tmp_path.iterdir():
        os.utime(file, (old, old))
    # The change of the inode is never older than the file: make it look so.
    held = (tmp_path / "nccl-mapped").open("rb")
    before = memory.YOUNG_S
    memory.YOUNG_S = -1.0
    try:
        names = {segment["name"] for segment in memory.stale_segments(tmp_path)}
    finally:
        memory.YOUNG_S = before
        held.close()
    assert names == {"nccl-AbCdEf", "torch_123_456"}
    assert memory.stale_segments(tmp_path) == []  # young: made a moment ago


@pytest.mark.skipif(not iperf.installed(), reason="iperf3 is not installed")
def test_iperf_counts_what_arrives():
    told = iperf.send("127.0.0.1", iperf.serve()["port"], 1.0)
    assert told["why"] == ""
    assert told["gbits"] > 0


def test_iperf_that_could_not_connect_is_no_measurement():
    refused = b'{"start": {}, "end": {}, "error": "unable to connect to server: Connection refused"}'
    assert iperf.read(refused) == {"gbits": None, "why": "unable to connect to server: Connection refused"}
    assert iperf.read(b"", "no answer within 9 s")["why"] == "no answer within 9 s"


def test_nothing_there_is_absent_not_an_error(tmp_path):
    answers = run(Place(tmp_path), "gpus", "rdma")
    assert all(answer.absent for answer in answers.values())
    assert Path(tmp_path).exists()


def test_the_port_of_the_launcher_that_started_the_check_is_not_taken():
    """torchrun listens for its own job while its ranks run the check; anybody else's port is taken."""
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        assert not PROBES["processes"].measure(Place(launch=Launch(port=port)))["port_taken"]
    listen = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", listen], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        port = int(other.stdout.readline())
        told = PROBES["processes"].measure(Place(launch=Launch(port=port)))
        other.communicate(b"\n", timeout=100)
    assert told["port_taken"]
    assert [one["pid"] for one in told["listeners"]] == [other.pid]


def test_high_ports_are_spread_over_those_that_the_kernel_hands_out():
    served = server.Server("secret", None).about()
    ports = server._local_ports()
    part = len(ports) // 8
    assert [(port - ports.start) // part for port in served["high"]] == list(range(8))
