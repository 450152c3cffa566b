"""Launch lines against the job's size and against each other."""

import pytest

from whichrank.flows.env.lint import lint
from whichrank.source import launch

SLURM = "#!/bin/bash\n#SBATCH --nodes={nodes} --ntasks-per-node={tasks} --gpus-per-node=4\n{body}\n"
RUN = "srun torchrun --nnodes={n} --nproc-per-node={p} --rdzv-endpoint=$HEAD:29500 t.py"
SSH = 'ssh {host} "torchrun --nnodes 2 --node-rank {rank} --master-addr {to} --master-port {port} t.py" &'
POD = """apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: t, namespace: {space}}}
spec:
  replicas: {replicas}
  template:
    spec:
      containers:
        - name: t
          image: lab/t
          env: [{{name: NCCL_DEBUG, value: INFO}}]
          command: [torchrun, --nnodes=2, --nproc-per-node={p}, --master-addr=t-0.t, t.py]
          resources: {{limits: {{nvidia.com/gpu: 4}}}}
"""


def said(text, name):
    found = lint([launch.read(text.encode(), name)]).findings
    return [f.message.split()[0].rstrip(":") for f in found if f.severity != "info"]


@pytest.mark.parametrize(
    ("nodes", "tasks", "body", "names"),
    [
        (2, 1, RUN.format(n=2, p=4), []),
        (2, 1, RUN.format(n=2, p=8), ["--nproc-per-node"]),
        (2, 1, RUN.format(n=4, p=4), ["--nnodes"]),
        (2, 4, RUN.format(n=2, p=4), ["ntasks-per-node"]),
        (2, 1, "srun -N1 -w n1 " + RUN.format(n=2, p=4)[5:], []),
        (2, 4, "export MASTER_ADDR=localhost\nsrun python t.py", ["MASTER_ADDR"]),
        (1, 4, "export MASTER_ADDR=localhost\nsrun python t.py", []),
        (2, 4, "export WORLD_SIZE=4\nsrun python t.py", ["WORLD_SIZE"]),
        (2, 4, "export WORLD_SIZE=8\nsrun python t.py", []),
    ],
)
def test_slurm(nodes, tasks, body, names):
    assert said(SLURM.format(nodes=nodes, tasks=tasks, body=body), "job.sbatch") == names


@pytest.mark.parametrize(
    ("second", "names"),
    [
        ({"host": "b", "rank": 1, "to": "a", "port": 29500}, []),
        ({"host": "b", "rank": 1, "to": "a", "port": 29501}, ["--master-port"]),
        ({"host": "b", "rank": 1, "to": "b", "port": 29500}, ["--master-addr"]),
        ({"host": "b", "rank": 0, "to": "a", "port": 29500}, ["--node-rank"]),
        ({"host": "c", "rank": 0, "to": "c", "port": 29501}, []),
    ],
)
def test_lines_of_one_job(second, names):
    first = SSH.format(host="a", rank=0, to="a", port=29500)
    assert said(f"#!/bin/bash\n{first}\n{SSH.format(**second)}\n", "go.sh") == names


@pytest.mark.parametrize(
    ("space", "replicas", "p", "names"),
    [
        ("lab", 2, 4, []),
        ("lab", 3, 4, ["--nnodes"]),
        ("lab", 2, 8, ["--nproc-per-node"]),
        ("train-prod", 2, 4, ["NCCL_DEBUG=INFO"]),
        ("products", 2, 4, []),
    ],
)
def test_pods(space, replicas, p, names):
    assert said(POD.format(space=space, replicas=replicas, p=p), "sts.yaml") == names


def test_what_a_loop_sets_reaches_its_next_round():
    text = "#!/bin/bash\nwhile :; do\n torchrun --standalone t.py && break\n export NCCL_DEBUG=INFO\ndone\n"
    assert said(text, "retry.sh") == []
