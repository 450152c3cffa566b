"""The same through schedulers: a real Slurm, and kubectl as it is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from tests.run import cluster
from tests.run.first_response.nodes import SCRIPT
from tests.run.watched import free_port

SBATCH = """#!/bin/sh
#SBATCH --nodes=2 --ntasks-per-node=1
export MASTER_ADDR=127.0.0.1 MASTER_PORT={port} WORLD_SIZE=2 OMP_NUM_THREADS=1
srun --unbuffered sh -c 'RANK=$SLURM_PROCID LOCAL_RANK=0 exec {python} {script} 1'
"""


@pytest.mark.job
@pytest.mark.skipif(bool(cluster.why_not()), reason=cluster.why_not() or "-")
def test_the_nodes_of_a_slurm_job(tmp_path):
    with cluster.started() as slurm:
        job = slurm.submit(tmp_path, SBATCH.format(port=free_port(), python=sys.executable, script=SCRIPT))
        deadline = time.monotonic() + 240
        while (tmp_path / "log").read_text().count("third step") < 2 if (tmp_path / "log").exists() else True:
            assert time.monotonic() < deadline, slurm.shown(job)
            time.sleep(0.2)
        done, stacks = (
            subprocess.run(
                [sys.executable, "-m", "whichrank", verb, "--slurm-job", str(job), "--format", "json"],
                capture_output=True, text=True, cwd=tmp_path, env=slurm.environment, timeout=120, check=False,
            )
            for verb in ("collect", "stacks")
        )  # fmt: skip
        slurm.call("scancel", job)
        slurm.wait(job)
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["verdict"]["culprits"]["ranks"] == [1]
    assert {(rank["rank"], rank["host"]) for rank in document["ranks"]} == {(0, "n1"), (1, "n2")}
    assert "2 of 2 ranks on 2 of 2 nodes" in done.stderr
    assert stacks.returncode == 0, stacks.stderr
    assert json.loads(stacks.stdout)["ranks"] == [0, 1]


KUBECTL = """#!/bin/sh
# get pods: the document of a cluster; exec: the command, as kubectl runs it in a pod.
echo "$@" >> {log}
if [ "$3" = get ]; then
  echo '{{"items": [{{"metadata": {{"name": "llama-0"}}, "status": {{"phase": "Running", "podIP": "10.1.0.4"}}}},
   {{"metadata": {{"name": "llama-1"}}, "status": {{"phase": "Running", "podIP": "10.1.0.5"}}}}]}}'
  exit
fi
pod=$5
while [ "$1" != -- ]; do shift; done
shift
[ $pod = llama-1 ] && {{ echo 'error: unable to upgrade connection: container not found ("main")' >&2; exit 1; }}
exec "$@"
"""


def of_pods(tmp_path, rank, verb, *more):
    """What a verb says of the pods of a job; one of them runs this command as rank 0, the other one fails."""
    (tmp_path / "kubectl").write_text(KUBECTL.format(log=tmp_path / "calls"))
    (tmp_path / "kubectl").chmod(0o755)
    port = free_port()
    known = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "llama-0", "MASTER_PORT": str(port)}
    running = subprocess.Popen(rank, env=known, stdout=subprocess.PIPE)
    try:
        running.stdout.readline()
        command = [sys.executable, "-m", "whichrank", verb, "--k8s", "train/job-name=llama", "--k8s-container", "main",
                   "--job", f"llama-0:{port}", *more]  # fmt: skip
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    finally:
        running.kill()
        running.communicate()


def test_the_stacks_of_the_pods_of_a_job(tmp_path):
    code = "import time\ndef fetch_shard():\n    time.sleep(120)\nprint('ready', flush=True)\nfetch_shard()\n"
    done = of_pods(tmp_path, [sys.executable, "-c", code], "stacks")
    assert done.returncode == 0, done.stderr
    assert "fetch_shard" in done.stdout
    assert "llama-1 failed: error: unable to upgrade connection" in done.stderr


def test_the_pods_of_a_job(tmp_path):
    """A rank that is not Python: what can be had of it comes through, and the pod that fails is told."""
    rank = ["sh", "-c", "echo ready; exec sleep 120"]
    done = of_pods(tmp_path, rank, "collect", "--out", str(tmp_path / "bundle"))
    assert done.returncode in (1, 3), done.stderr
    assert "1 of 2 ranks on 1 of 2 nodes" in done.stderr
    assert "llama-1 failed: error: unable to upgrade connection" in done.stderr
    assert len(list(tmp_path.glob("bundle/nodes/*/environment/rank_0.env"))) == 1
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0] == "--namespace train get pods --selector job-name=llama --output json"
    assert calls[1].startswith("--namespace train exec --stdin llama-")
