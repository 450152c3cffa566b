"""Schedulers as gates: the Slurm prolog, the init container, an allocation by srun, and the nodes of a Ray cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT, command_environment
from tests.run import cluster
from tests.run.watched import free_port
from whichrank.fleet.crew import crew
from whichrank.model.errors import UsageError

PROLOG = ROOT / "recipes/slurm/prolog.sh"


@pytest.fixture
def programs(tmp_path):
    """`whichrank` on the path, as an installation has it."""
    program = tmp_path / "whichrank"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m whichrank "$@"\n')
    program.chmod(0o755)
    return tmp_path


# Processes of other tests are none of this host's leftovers.
ALONE = ["unshare", "--pid", "--fork", "--mount-proc"] if os.geteuid() == 0 and shutil.which("unshare") else []


def run(command, programs, **more):
    environment = {**command_environment(), "PATH": f"{programs}:{os.environ['PATH']}", **more}
    return subprocess.run([*ALONE, *command], capture_output=True, text=True, timeout=120, env=environment, check=False)


def wedge(programs):
    program = programs / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)


def test_the_prolog_lets_a_healthy_node_pass_and_stops_another(programs):
    assert subprocess.run(["sh", "-n", PROLOG], check=False).returncode == 0
    done = run([str(PROLOG)], programs)
    assert (done.returncode, done.stdout) == (0, "")
    wedge(programs)
    done = run([str(PROLOG)], programs)
    assert done.returncode == 1
    assert "the driver is stuck" in done.stdout


def test_the_init_container(programs):
    yaml = pytest.importorskip("yaml")
    (document,) = yaml.safe_load_all((ROOT / "recipes/kubernetes/preflight.yaml").read_text())
    check = document["spec"]["template"]["spec"]["initContainers"][1]
    words = [*check["command"], *check["args"]]
    words = [w.replace("/evidence", str(programs)).replace("--nproc-per-node=8", "--nproc-per-node=1") for w in words]
    assert run(words, programs).returncode == 0
    wedge(programs)
    assert run(words, programs).returncode == 1


@pytest.mark.slow
@pytest.mark.bars
@pytest.mark.skipif(bool(cluster.why_not()), reason=cluster.why_not() or "-")
def test_inside_a_slurm_allocation(tmp_path):
    with cluster.started() as lab:
        told = tmp_path / "told.json"
        words = f"{sys.executable} -m whichrank preflight --slurm --quick --quiet --format json --output {told}"
        job = lab.submit(tmp_path / "job", f"#!/bin/bash\n{words} || true\n", "--nodes=2", "--ntasks=2")
        lab.wait(job, 120)
        assert told.exists(), (tmp_path / "job/log").read_text()
        document = json.loads(told.read_text())
    assert [host["host"] for host in document["hosts"]] == ["n1", "n2"]
    assert all(len(host["checks"]) > 8 for host in document["hosts"])


@pytest.mark.slow
@pytest.mark.bars
def test_the_nodes_of_a_ray_cluster():
    pytest.importorskip("ray")
    from whichrank.fleet.engines import ray_nodes

    port = free_port()
    words = [
        "start",
        "--head",
        "--block",
        "--num-cpus=1",
        "--include-dashboard=false",
        f"--port={port}",
        "--node-ip-address=127.0.0.1",
    ]
    head = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", *words, "--disable-usage-stats"], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        engine = eventually(lambda: ray_nodes.engine(f"127.0.0.1:{port}"), 90)
        assert len(engine.hosts) == 1
        with crew(engine, [sys.executable, "-m", "whichrank.evidence.probes._agent"]) as everyone:
            (reply,) = everyone.ask_all({"do": "hello"}, 90).values()
        assert reply.why == ""
        assert reply.result["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    finally:
        os.killpg(head.pid, signal.SIGTERM)  # --block: its own processes end with it
        head.wait(30)


def eventually(attempt, limit_s):
    """What it gives as soon as it works."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return attempt()
        except UsageError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)
