"""Schedulers as gates: the Slurm prolog, the init container, an allocation by srun, and the nodes of a Ray cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import ROOT, command_environment
from tests.run import cluster
from tests.run.watched import free_port

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


HANG = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
def step():
    for _ in range(3): dist.all_reduce(torch.ones(4))
    while dist.get_rank() == 2: time.sleep(1)
    dist.all_reduce(torch.ones(4))
step()
"""


@pytest.mark.slow
@pytest.mark.bars
def test_the_nodes_of_a_ray_cluster(tmp_path, whichrank):
    """Two nodes on this machine: preflight, stacks and collect of a job that hangs, and a diagnosis on the cluster."""
    pytest.importorskip("ray")
    pytest.importorskip("torch")
    from tests.preflight.ray_cluster import two_nodes

    program = tmp_path / "train.py"
    program.write_text(HANG)
    with tempfile.TemporaryDirectory(prefix="wr") as short, two_nodes(Path(short)) as (address, given):
        done = whichrank("preflight", "--ray", address, "--quick", "--quiet", "--format", "json", **given)
        document = json.loads(done.stdout)
        assert len({host["host"] for host in document["hosts"]}) == 2
        assert all(len(host["checks"]) > 8 for host in document["hosts"])
        with hung(program) as job:
            done = whichrank("stacks", "--ray", address, "--job", job, "--quiet", **given)
            assert "train.py:5 in step" in done.stdout, done.stderr
            out = tmp_path / "bundle"
            words = ("--job", job, "--timeout", 60, "--out", out, "--format", "json")
            done = whichrank("collect", "--ray", address, *words, **given)
            verdict = json.loads(done.stdout)["verdict"]
            assert verdict["culprits"]["ranks"] == [2], verdict
        here = json.loads(whichrank("diagnose", out, "--format", "json", "--quiet").stdout)
        there = whichrank("diagnose", out, "--engine", f"ray://{address}", "--format", "json", "--quiet", **given)
        assert there.returncode == 1, there.stderr
        for key in ("cause", "culprits", "victims", "category"):
            assert json.loads(there.stdout)["verdict"][key] == here["verdict"][key]


@contextmanager
def hung(program):
    """Three ranks of which one does not arrive; ended at the end."""
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**command_environment(), "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3",
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCH_FR_BUFFER_SIZE": "100"},
        )
        for rank in range(3)
    ]  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not all(_is_in(rank.pid, "libtorch") for rank in ranks):
            time.sleep(0.5)
        time.sleep(10)  # until they meet and two of them wait
        yield f"127.0.0.1:{port}"
    finally:
        for rank in ranks:
            os.killpg(rank.pid, signal.SIGKILL)
            rank.wait(10)


def _is_in(pid, library):
    try:
        return library in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False
