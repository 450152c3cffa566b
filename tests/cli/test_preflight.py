"""preflight from the command line: this host, a recorded one, its formats, the gate of `run`, and --clean."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from tests.conftest import command_environment
from tests.preflight import trees
from whichrank.cli.during import _gate
from whichrank.evidence import leftovers
from whichrank.evidence.collectors import processes
from whichrank.evidence.probes import memory
from whichrank.flows.preflight import check as flow
from whichrank.lab.setup import free_port
from whichrank.model.evidence import Coverage
from whichrank.model.preflight import HostCheck
from whichrank.records.inspection import Inspection
from whichrank.report import _preflight as report

SCHEMA = json.loads((Path(report.__file__).parent / "schemas/preflight.schema.json").read_text())


def test_this_host_in_json(whichrank):
    done = whichrank("preflight", "--quick", "--format", "json")
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    (host,) = document["hosts"]
    states = {check["check"]: check["state"] for check in host["checks"]}
    assert states["shared-memory"] in ("healthy", "unhealthy")
    assert "gpus" not in states or states["gpus"] != "unknown" or not Path("/dev/nvidia0").exists()
    skipped = {rule["code"]: rule["missing"] for rule in document["coverage"]["rules"]["not_evaluated"]}
    if not Path("/dev/nvidia0").exists():
        assert skipped["PREH101"] == "no NVIDIA GPU"


def test_a_recorded_machine_with_a_fault(whichrank, tmp_path):
    root = trees.machine(tmp_path / "tree", changes={2: [(r"(<remapped_row_failure>)No", r"\g<1>Yes")]})
    kept = tmp_path / "bad.txt"
    done = whichrank(
        "preflight", "--quick", "--root", root, "--nproc-per-node", 8, "--exclude-file", kept, "--format", "json"
    )
    assert done.returncode == 1, done.stdout
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    (finding,) = document["findings"]
    assert (finding["code"], finding["cause"]) == ("PREH102", "ecc-error")
    assert [gpu["index"] for gpu in finding["subject"]["gpus"]] == [2]
    assert "replaced" in finding["fix"][0]
    assert kept.read_text().split() == document["exclude"] == [document["hosts"][0]["host"]]


@pytest.mark.parametrize("format_", ["text", "markdown", "html", "junit"])
def test_formats(whichrank, tmp_path, format_):
    root = trees.machine(tmp_path, changes={1: [(r"(<gpu_recovery_action>)None", r"\g<1>Drain and Reset")]})
    done = whichrank("preflight", "--quick", "--root", root, "--format", format_)
    assert done.returncode == 1
    assert "Drain and Reset" in done.stdout
    if format_ == "junit":
        suites = ET.fromstring(done.stdout)
        assert [case.get("name") for case in suites.iter("testcase") if case.find("failure") is not None] == [
            "gpu-recovery"
        ]


def test_a_narrow_terminal(whichrank, tmp_path):
    root = trees.machine(tmp_path, changes={1: [(r"(<gpu_recovery_action>)None", r"\g<1>Drain and Reset")]})
    said = whichrank("preflight", "--quick", "--root", root, COLUMNS="50").stdout
    assert max(map(len, said.splitlines())) <= 50
    assert " ".join(said.split()).count("Drain and Reset") == 2, "once as the finding, once in the list of checks"
    budget = whichrank("preflight", "--model-params", "7B", "--nproc-per-node", 8, "--root", root, COLUMNS="50").stdout
    assert max(map(len, budget.splitlines())) <= 50
    assert "8 ranks, 8 on each of 1 host" in budget


def fleet(names, why=lambda _: "no answer"):
    checks = {name: [HostCheck("clock", "PREH126", "unknown", None, why(name))] for name in names}
    return flow.Preflight(checks, [], [], [], Coverage(), Inspection())


def test_hosts_that_do_not_fit_beside_each_other_are_a_list():
    names = [f"gpu-node-{number:03}.cluster.example" for number in range(4)]
    assert names[0] in "".join(report.text(fleet(names)))
    assert "clock: 0 ok, ? 4" in "".join(report.text(fleet(names), width=80))


def test_who_could_not_tell_what():
    """The hosts of each reason, also where two checks share a reason on different hosts."""
    told = fleet("ab", lambda name: {"a": "hidden", "b": "slow"}[name])
    told.hosts["b"].append(HostCheck("memory", "PREH117", "unknown", None, "hidden"))
    said = "".join(report.text(told))
    assert "  clock on a: hidden\n  clock on b: slow\n  memory on b: hidden\n" in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--clean", "--hosts", "a,b"), "this host only"),
        (("--verdict", __file__), "--verdict needs --map"),
        (("--exclude-file", "/nonexistent/bad.txt"), "can't write"),
        (("--model-params", "inf"), "not a number of parameters"),
        (("--quick", "--full"), "exclude each other"),
    ],
)
def test_what_can_not_work_is_said_at_once(whichrank, words, why):
    done = whichrank("preflight", *words)
    assert done.returncode == 2
    assert why in done.stderr


def test_hosts_that_can_not_be_reached(whichrank):
    done = whichrank("preflight", "--hosts", "a,b", "--ssh", "false", "--format", "json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    assert {f["code"] for f in document["findings"]} == {"PREF101"}
    assert document["exclude"] == ["a", "b"]


def test_two_ways_to_name_hosts(whichrank):
    done = whichrank("preflight", "--hosts", "a", "--slurm")
    assert done.returncode == 2
    assert "different ways" in done.stderr


def test_copies_of_any_launcher_meet(tmp_path):
    """Three copies on one host: rank 0 tells, the others serve and end well."""
    port = free_port() - 1  # the copies meet on the next one
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "whichrank", "preflight", "--quiet", "--port", str(port), "--format", "json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**command_environment(), "RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1"},
        )
        for rank in range(3)
    ]  # fmt: skip
    said = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started[1:]] == [0, 0], said
    assert started[0].returncode in {0, 1, 3}, said
    assert len(json.loads(said[0][0])["hosts"]) == 1
    assert said[1][0] == said[2][0] == ""


@pytest.mark.job
def test_run_is_gated(whichrank, tmp_path):
    command = ["--", sys.executable, "-c", "print('trained')"]
    for attempt in range(30):
        done = whichrank("run", "--preflight", "--out", tmp_path / f"out-{attempt}", *command)
        if "of a dead job still run" not in done.stderr:  # tests beside this one have such ranks for a while
            break
        time.sleep(4)
    assert done.returncode == 0, done.stderr
    assert "trained" in done.stdout


@pytest.mark.parametrize(
    ("command", "ranks"),
    [("torchrun --nproc-per-node 8 train.py", 8), ("torchrun --nproc_per_node=4 train.py", 4),
     ("torchrun --nproc_per_node=gpu train.py", None), ("python train.py", None)],
)  # fmt: skip
def test_the_gate_knows_what_will_be_started(monkeypatch, command, ranks):
    asked = []
    monkeypatch.setattr(flow, "preflight", lambda _engine, wishes: asked.append(wishes) or flow.judge(Inspection()))
    assert not _gate.refuses(command.split(), print)
    assert asked[0].launch.ranks_per_host == ranks
    assert asked[0].quick


@pytest.mark.job
def test_run_is_refused_where_the_driver_is_stuck(whichrank, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'No devices were found'; exec sleep 600\n")
    program.chmod(0o755)
    done = whichrank(
        "run", "--preflight", "--out", tmp_path / "out", "--", sys.executable, "-c", "print('trained')",
        PATH=f"{tmp_path}:{os.environ['PATH']}",
    )  # fmt: skip
    assert done.returncode == 1
    assert "trained" not in done.stdout
    assert "the driver is stuck" in done.stderr


def test_a_driver_that_answers_only_in_part(whichrank, tmp_path):
    """The report comes, NVLink is never told: that costs its limit once and is no "ready"."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\ncase "$*" in *-x*) exec cat {trees.SAMPLE};; esac\nexec sleep 600\n')
    program.chmod(0o755)
    began = time.monotonic()
    done = whichrank("preflight", "--quick", "--format", "json", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 1
    (finding,) = [f for f in json.loads(done.stdout)["findings"] if f["code"] == "PREH106"]
    assert "no answer within 5 s: the driver is stuck" in finding["message"]
    assert time.monotonic() - began < 120


# -- cleaning up


@pytest.fixture
def orphan():
    """A rank whose launcher has died: init (or whoever reaps here) has taken it over."""
    launcher = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'], start_new_session=True,\n"
        "    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,\n"
        "    env={**os.environ, 'RANK': '3', 'WORLD_SIZE': '8'})\n"
        "print(child.pid, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", launcher], capture_output=True, text=True, check=True, timeout=120)
    pid = int(done.stdout)
    yield pid
    subprocess.run(["kill", "-9", str(pid)], capture_output=True, check=False)


def test_an_orphan_is_found_and_ended(orphan):
    row = processes.stat(orphan)
    if row is None or row.parent != 1:
        pytest.skip("orphans are not taken over by init here")
    (found,) = [left for left in leftovers.find() if left.pid == orphan]
    assert "rank 3 whose launcher is gone" in found.detail
    assert leftovers.remove(found) == ""
    gone = processes.stat(orphan)
    assert gone is None or gone.state in "ZX"


def test_a_rank_with_its_launcher_is_left_alone():
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "2"}
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=environment)
    try:
        time.sleep(0.3)
        assert not [left for left in leftovers.find() if left.pid == child.pid]
    finally:
        child.kill()
        child.wait()


def test_segments_in_use_by_now_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "YOUNG_S", -1.0)
    segment = tmp_path / "nccl-AbCdEf"
    segment.write_bytes(b"x" * 64)
    (found,) = [left for left in leftovers.find(tmp_path, []) if left.kind == "segment"]
    assert found.ours
    with segment.open("rb"):
        assert leftovers.remove(found) == "is in use by now"
    segment.unlink()
    segment.write_bytes(b"another")
    segment.rename(tmp_path / "x")
    assert leftovers.remove(found)
    (tmp_path / "x").rename(segment)
    (again,) = [left for left in leftovers.find(tmp_path, []) if left.kind == "segment"]
    assert leftovers.remove(again) == ""
    assert not segment.exists()


def test_a_segment_of_a_process_that_can_not_be_seen_is_kept(monkeypatch):
    """A job in another container that shares /dev/shm: its processes are not in our table, the kernel knows them."""
    monkeypatch.setattr(memory, "YOUNG_S", -1.0)
    segment = Path("/dev/shm") / f"nccl-{os.getpid()}Unseen"
    segment.write_bytes(b"x" * 4096)
    hold = f"import mmap; f = open({str(segment)!r}, 'r+b'); m = mmap.mmap(f.fileno(), 4096); f.close(); input()"
    job = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 20
        while segment.name in stale(Path("/proc/self")) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert segment.name not in stale(Path("/proc/self"))
        job.communicate(b"\n", timeout=100)
        assert segment.name in stale(Path("/proc/self"))
    finally:
        job.kill()
        job.wait()
        segment.unlink()


def stale(proc):
    """As somebody sees it who sees no process at all."""
    return {found["name"] for found in memory.stale_segments(Path("/dev/shm"), proc)}


def test_clean_asks_nobody_without_a_terminal(whichrank):
    done = whichrank("preflight", "--clean")
    assert done.returncode in (0, 1)
    assert "Removed" not in done.stdout
