"""The recipes: they keep their schemas and settle nothing wrong, and their commands are run for real."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Command
from tests.run import watched

yaml = pytest.importorskip("yaml")
SLURM = sorted((ROOT / "recipes/slurm").glob("*.sbatch"))
MANIFESTS = sorted((ROOT / "recipes/kubernetes").glob("*.yaml"))
KUBERNETES = "1.33"
pytestmark = [pytest.mark.job, pytest.mark.slow]
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
TRAIN = """\
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(20):
    dist.all_reduce(torch.ones(8))
os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()} is done\\n".encode())
dist.destroy_process_group()
"""


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def pods(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every pod that a manifest asks for."""
    spec = document.get("spec", {})
    if document["kind"] == "Job":
        yield spec["template"]
    elif document["kind"] == "PyTorchJob":
        yield from (replica["template"] for replica in spec["pytorchReplicaSpecs"].values())
    elif document["kind"] == "JobSet":
        yield from (job["template"]["spec"]["template"] for job in spec["replicatedJobs"])


def everything() -> Iterator[dict[str, Any]]:
    for path in MANIFESTS:
        for document in documents(path):
            yield from pods(document)


@pytest.mark.parametrize("path", SLURM + MANIFESTS, ids=lambda path: path.name)
def test_settings_are_in_order(path: Path, whichrank: Command) -> None:
    done = whichrank("env", "lint", "--for", "production", path)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("0 findings"), done.stdout


@pytest.mark.parametrize("path", SLURM, ids=lambda path: path.name)
def test_batch_files_are_shell(path: Path) -> None:
    done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    text = path.read_text()
    # A shell in between would keep Slurm's signals from reaching whichrank.
    assert "\nexec whichrank run" in text or "\nsrun whichrank run" in text


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_keep_the_schema_of_kubernetes(path: Path) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    for document in documents(path):
        if document["kind"] in ("Job", "Secret"):
            validator.validate(document, KUBERNETES, strict=True)
        for pod in pods(document):
            named = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod["spec"]}
            validator.validate(named, KUBERNETES, strict=True)


def test_resources_that_others_define() -> None:
    """Their schemas are not part of Kubernetes: what a controller can't do without is there."""
    job = next(d for d in documents(ROOT / "recipes/kubernetes/pytorchjob.yaml") if d["kind"] == "PyTorchJob")
    assert job["apiVersion"] == "kubeflow.org/v1"
    assert set(job["spec"]["pytorchReplicaSpecs"]) == {"Master", "Worker"}
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        assert replica["replicas"] >= 1
        assert [c["name"] for c in replica["template"]["spec"]["containers"]] == ["pytorch"], "the operator's own name"
    (job_set,) = documents(ROOT / "recipes/kubernetes/jobset.yaml")
    assert job_set["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    (replicated,) = job_set["spec"]["replicatedJobs"]
    pod_of_leader = f"{job_set['metadata']['name']}-{replicated['name']}-0-0.{job_set['spec']['network']['subdomain']}"
    (container,) = replicated["template"]["spec"]["template"]["spec"]["containers"]
    assert f"{pod_of_leader}:29777" in container["command"]
    assert f"--rdzv-endpoint={pod_of_leader}:29500" in container["args"]
    assert f"--nnodes={replicated['template']['spec']['completions']}" in container["args"]


def test_every_pod_checks_first_and_has_time_to_say_why_it_ends() -> None:
    for pod in everything():
        assert pod["spec"]["initContainers"][0]["command"][:3] == ["whichrank", "env", "lint"]
        assert pod["spec"]["terminationGracePeriodSeconds"] >= 60
        mounts = {m["mountPath"] for c in pod["spec"]["containers"] for m in c["volumeMounts"]}
        assert {"/evidence", "/dev/shm"} <= mounts


# -- as the containers would run them


def settings(container: dict[str, Any], **more: str) -> dict[str, str]:
    """The environment of a container: its own settings and nothing else of this one but where programs are."""
    own = {entry["name"]: entry["value"] for entry in container.get("env", []) if "value" in entry}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    base = {"PATH": path, "HOME": "/tmp", "PYTHONPATH": watched.environment()["PYTHONPATH"], "OMP_NUM_THREADS": "1"}
    return {**base, "WHICHRANK_HISTORY": "off", **own, **more}


def command(container: dict[str, Any], **changes: str) -> list[str]:
    """The words of a container, with what only exists in the cluster exchanged; every change must be of use."""
    line = "\0".join([*container["command"], *container.get("args", [])])
    for old, new in changes.items():
        assert old in line, old
        line = line.replace(old, new)
    return line.split("\0")


def pod_of_job() -> dict[str, Any]:
    (document,) = documents(ROOT / "recipes/kubernetes/job.yaml")
    (pod,) = pods(document)
    return pod["spec"]


def test_the_check_of_the_init_container() -> None:
    check = pod_of_job()["initContainers"][0]
    done = subprocess.run(command(check), env=settings(check), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    bad = settings(check, NCCL_SOCKET_IFNAME="eth0,", NCCL_P2P_DISABLED="1")
    done = subprocess.run(command(check), env=bad, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, "a pod with settings that can't work does not start"


def test_the_sidecar_keeps_what_there_is_at_the_end(tmp_path: Path) -> None:
    keep = pod_of_job()["initContainers"][1]
    assert keep["restartPolicy"] == "Always"
    evidence, kept = tmp_path / "evidence", tmp_path / "kept/pod"
    evidence.mkdir()
    (evidence / "run.json").write_text("{}")
    process = subprocess.Popen(command(keep), env=settings(keep, EVIDENCE=str(evidence), KEPT=str(kept)))
    try:
        deadline = time.monotonic() + 20
        while not (kept / "run.json").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        (evidence / "verdict.json").write_text("{}")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    assert {path.name for path in kept.iterdir()} == {"run.json", "verdict.json"}


@needs_torch
@pytest.mark.bars
def test_the_job_of_one_pod(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (container,) = pod_of_job()["containers"]
    line = command(container, **{"/evidence": str(tmp_path / "out"), "train.py": str(tmp_path / "train.py"),
                                 "--nproc-per-node=8": "--nproc-per-node=2"})  # fmt: skip
    done = subprocess.run(line, env=settings(container), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")[:2]) == ["rank 0 of 2 is done", "rank 1 of 2 is done"]
    told = json.loads((tmp_path / "out/run.json").read_text())
    assert (told["state"], told["exit_code"], told["ranks_seen"]) == ("ended", 0, [0, 1])


@needs_torch
@pytest.mark.slow
def test_the_pods_of_a_pytorchjob(tmp_path: Path) -> None:
    """Two pods with one rank each, and the variables that the operator gives them."""
    (tmp_path / "train.py").write_text(TRAIN)
    job = next(d for d in documents(ROOT / "recipes/kubernetes/pytorchjob.yaml") if d["kind"] == "PyTorchJob")
    port, leader = watched.free_port(), watched.free_port()
    started = []
    for number, kind in enumerate(("Master", "Worker")):
        (container,) = job["spec"]["pytorchReplicaSpecs"][kind]["template"]["spec"]["containers"]
        line = command(container, **{"/evidence": str(tmp_path / "out"), "train.py": str(tmp_path / "train.py"),
                                     "train-master-0:29777": f"127.0.0.1:{leader}"})  # fmt: skip
        environ = settings(
            container, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), PET_MASTER_ADDR="127.0.0.1",
            PET_MASTER_PORT=str(port), WORLD_SIZE="2", RANK=str(number), PET_NODE_RANK=str(number), PET_NNODES="2",
            PET_NPROC_PER_NODE="1", WHICHRANK_TOKEN="a-long-word-for-this-test", PYTHONUNBUFFERED="1",
        )  # fmt: skip
        started.append(subprocess.Popen(line, env=environ, stdout=-1, stderr=-1, text=True))
    done = [process.communicate(timeout=180) for process in started]
    assert [process.returncode for process in started] == [0, 0], done
    said = sorted(line for out, _ in done for line in out.splitlines() if line.startswith("rank"))
    assert said == [f"rank {rank} of 2 is done" for rank in range(2)]
    seen = [json.loads(path.read_text())["ranks_seen"] for path in sorted((tmp_path / "out").rglob("run.json"))]
    assert sorted(seen) == [[0], [1]], "a launcher is not a rank, though the operator numbers it like one"


@needs_torch
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_pod_that_is_evicted(tmp_path: Path) -> None:
    """In a process namespace of its own, as the first process there, and ended from outside of it."""
    (container,) = pod_of_job()["containers"]
    forked = "\0".join(watched.forked(watched.HERE / "small_job.py", tmp_path, world=2))
    line = command(container, **{"/evidence": str(tmp_path / "out"),
                                 "torchrun\0--standalone\0--nproc-per-node=8\0train.py": forked})  # fmt: skip
    environ = settings(container, KUBERNETES_SERVICE_HOST="10.96.0.1")
    isolated = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *line]
    process = subprocess.Popen(isolated, env=environ, stdout=-1, stderr=-1, text=True)
    try:
        deadline = time.monotonic() + 200
        while not (tmp_path / "ready.1").exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        (first,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        os.kill(first, signal.SIGTERM)
        _, said = process.communicate(timeout=150)
    finally:
        process.kill()
        process.wait()
    told = json.loads((tmp_path / "out/run.json").read_text())
    assert (told["ended_by"]["signal"], told["ended_by"]["sender"], told["alarms"]) == ("SIGTERM", None, []), said
    verdict = json.loads((tmp_path / "out/verdict.json").read_text())["verdict"]
    assert (verdict["cause"], verdict["culprits"]["ranks"]) == ("job-ended-from-outside", [])
