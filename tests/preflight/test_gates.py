"""Schedulers as gates: the Slurm prolog, the init container, an allocation by srun, pods, nodes of a Ray cluster."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from xml.etree import ElementTree as ET

import pytest

from tests.conftest import ROOT, command_environment
from tests.preflight.cluster import READY
from tests.run import cluster

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
        words = f"{sys.executable} -m whichrank preflight --slurm --quiet --format json --output {told}"
        job = lab.submit(tmp_path / "job", f"#!/bin/bash\n{words} || true\n", "--nodes=2", "--ntasks=2")
        lab.wait(job, 120)
        assert told.exists(), (tmp_path / "job/log").read_text()
        document = json.loads(told.read_text())
    assert [host["host"] for host in document["hosts"]] == ["n1", "n2"]
    assert all(len(host["checks"]) > 8 for host in document["hosts"])
    assert [(link["a"], link["b"], link["state"]) for link in document["links"]] == [("n1", "n2", "healthy")]
    assert [finding for finding in document["findings"] if finding["code"].startswith("PREF")] == []


@pytest.mark.slow
@pytest.mark.bars
@pytest.mark.skipif(bool(cluster.why_not()), reason=cluster.why_not() or "-")
def test_slurm_drains_a_node_by_the_prolog(programs, tmp_path_factory):
    """slurmd itself runs the recipe: the job leaves the node whose driver is stuck, and ends on the other one."""
    stuck = tmp_path_factory.mktemp("stuck")
    wedge(stuck)
    prolog = programs / "prolog"
    prolog.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={ROOT / 'src'} WHICHRANK={programs / 'whichrank'}\n"
        f'[ "$SLURMD_NODENAME" = n1 ] && export PATH={stuck}:/usr/bin:/bin\nexec {PROLOG}\n'
    )
    prolog.chmod(0o755)
    more = f"Prolog={prolog}\nPrologFlags=Alloc\nSchedulerParameters=nohold_on_prolog_fail\n"
    with cluster.started(more) as lab:
        job = lab.submit(programs / "job", "#!/bin/bash\necho trained on $SLURMD_NODENAME\n", "--requeue")
        shown = lab.wait(job, 170)
        nodes = {node: lab.call("scontrol", "show", "node", node) for node in ("n1", "n2")}
    assert (shown["JobState"], shown["NodeList"]) == ("COMPLETED", "n2")
    assert "trained on n2" in (programs / "job/log").read_text()
    assert "DRAIN" in nodes["n1"]
    assert "DRAIN" not in nodes["n2"]


@pytest.mark.slow
@pytest.mark.bars
@pytest.mark.skipif(not READY or not shutil.which("kubectl"), reason="needs root, ip, nft, tc, sshd and kubectl")
def test_pods_by_a_real_kubectl(tmp_path):
    """`--k8s` through the real program: a blocked port of one of three pods is found, with JSON and JUnit."""
    from tests.preflight.cluster import Cluster
    from tests.preflight.kube_api import serving
    from whichrank.lab import wires

    with Cluster(3) as pods:
        pods.start()

        def start(pod, words):
            ssh = ["ssh", "-F", str(pods.folder / "ssh_config"), pods.host(pod).address, shlex.join(words)]
            command = ["ip", "netns", "exec", pods.host("login").namespace, *ssh]
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=False
            )

        def look(format_):
            words = ["preflight", "--k8s", "train/job-name=llama", "--k8s-container", "main", "--quiet"]
            return subprocess.run(
                [sys.executable, "-m", "whichrank", *words, "--format", format_], capture_output=True, text=True,
                timeout=120, env={**command_environment(), "KUBECONFIG": str(config)}, check=False,
            )  # fmt: skip

        with serving({name: pods.host(name).address for name in pods.names}, start) as settings:
            config = tmp_path / "config"
            config.write_text(json.dumps(settings))
            healthy = look("json")
            assert healthy.returncode == 0, healthy.stderr + healthy.stdout
            assert [host["host"] for host in json.loads(healthy.stdout)["hosts"]] == pods.names
            wires.close_ports(pods.host("node2"), "29500")
            told = look("junit")
    assert told.returncode == 1, told.stderr
    failed = [failure.get("message") for failure in ET.fromstring(told.stdout).iter("failure")]
    assert failed
    assert all("node2" in message for message in failed), failed


HANG = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
def step():
    for _ in range(3): dist.all_reduce(torch.ones(4)); print("waiting", flush=True)
    while dist.get_rank() == 2: time.sleep(1)
    dist.all_reduce(torch.ones(4))
step()
"""


@pytest.mark.slow
@pytest.mark.bars
@pytest.mark.skipif(not READY, reason="needs root, ip, nft, tc and sshd")
def test_a_ray_cluster_of_two_hosts(tmp_path):
    """preflight, stacks and collect of a job that hangs there, and a diagnosis that runs on the cluster."""
    pytest.importorskip("ray")
    pytest.importorskip("torch")
    from tests.preflight.ray_cluster import ray_cluster

    program = tmp_path / "train.py"
    program.write_text(HANG)
    out = tmp_path / "bundle"
    with ray_cluster() as ray:
        done = ray.whichrank("preflight", "--ray", ray.address, "--quiet", "--format", "json")
        document = json.loads(done.stdout)
        assert [host["host"] for host in document["hosts"]] == ["node1", "node2"]
        assert document["links"] == [{"a": "node1", "b": "node2", "state": "healthy", "why": None}]
        with hung(ray, program):
            done = ray.whichrank("stacks", "--ray", ray.address, "--quiet")
            assert "step (train.py:6)" in done.stdout, done.stdout + done.stderr
            words = ("--timeout", 60, "--out", out, "--format", "json", "--quiet")
            done = ray.whichrank("collect", "--ray", ray.address, *words)
            verdict = json.loads(done.stdout)["verdict"]
            assert verdict["culprits"]["ranks"] == [2], verdict
        here = json.loads(ray.whichrank("diagnose", out, "--format", "json", "--quiet").stdout)
        done = ray.whichrank("diagnose", out, "--engine", f"ray://{ray.address}", "--format", "json", "--quiet")
        assert done.returncode == 1, done.stderr
        there = json.loads(done.stdout)
        for key in ("cause", "culprits", "victims", "category"):
            assert there["verdict"][key] == here["verdict"][key]


@contextmanager
def hung(ray, program):
    """Two ranks on each of two hosts, of which one does not arrive."""
    given = {"WORLD_SIZE": "4", "MASTER_ADDR": "node1", "MASTER_PORT": "29600", "TORCH_FR_BUFFER_SIZE": "100"}
    ranks = []
    for rank in range(4):
        own = {**given, "RANK": str(rank), "LOCAL_RANK": str(rank % 2)}
        command = ray.command(f"node{rank // 2 + 1}", sys.executable, program, **own)
        ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
    try:
        assert all(rank.stdout.readline() == "waiting\n" for rank in ranks)
        time.sleep(3)  # until those that wait are in the call
        yield
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait(10)
