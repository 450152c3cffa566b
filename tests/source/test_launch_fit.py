"""What a launch is given and what it starts, in every format that states it; beside each mistake its right form."""

import pytest

from whichrank.flows.env.lint import lint
from whichrank.source import launch

TORCHRUN = "torchrun --nnodes={n} --nproc_per_node={p} --node_rank={r} --master_addr=h0 --master_port=29500 t.py"


def said(text, name):
    found = lint([launch.read(text.encode(), name)]).findings
    return [(f.message.split()[0].rstrip(":"), f.evidence[0].locator) for f in found if f.severity != "info"]


def right_and_wrong(text, name, right, wrong, expected):
    assert said(text.format(*right), name) == []
    assert said(text.format(*wrong), name) == expected


@pytest.mark.parametrize(
    ("text", "right", "wrong", "expected"),
    [
        ("#PBS -l select=2:ncpus=8:mpiprocs=4:ngpus=4\nmpirun -np {} python t.py", [8], [16], ("-np", 3)),
        ("#PBS -l select=2:ncpus=8:mpiprocs=4:ngpus=4\nmpirun -np {} python t.py", [8], [4], ("-np", 3)),
        ("\nmpirun -np {} -H a:4,b:4 ./all_reduce_perf", [8], [12], ("-np", 3)),
        ("\nmpirun -np 8 -N {} -H a,b ./all_reduce_perf", [4], [2], ("-np", 3)),
        ("export CUDA_VISIBLE_DEVICES={}\nmpirun -np 2 python t.py", ["0,1"], ["0"], None),
        ("cat > hosts <<E\na slots=8\nb slots=8\nE\ndeepspeed --hostfile hosts --num_nodes {} t.py", [2], [3],
         ("--num_nodes", 6)),
        (('#BSUB -n 8\n#BSUB -R "span[ptile=4]"\nblaunch h torchrun --nnodes={} --rdzv_backend=c10d '
         "--rdzv_endpoint=a:1 t.py"), [2], [4], ("--nnodes", 4)),
        ("#BSUB -nnodes 2\njsrun -n {} -r 4 -a 1 python t.py", [8], [12], ("--nrs", 3)),
        ("\ndocker run --gpus {} --ipc=host img torchrun --standalone --nproc_per_node=4 t.py", [4], [2],
         ("--nproc_per_node", 3)),
        ("\naccelerate launch --num_machines 2 --num_processes {} --machine_rank $R --main_process_ip a t.py", [8], [7],
         ("--num_processes", 3)),
        (("# two hosts with 8 GPUs each\naccelerate launch --num_machines 2 --num_processes {} --machine_rank $R "
         "--main_process_ip a t.py"), [16], [8], ("--num_processes", 3)),
        (("#SBATCH -N 1 --ntasks-per-node=1 --cpus-per-task=16\nexport OMP_NUM_THREADS={}\n"
         "srun torchrun --standalone --nproc_per_node=4 t.py"), [4], [8], ("OMP_NUM_THREADS", 3)),
        ("#SBATCH -N 2 --ntasks-per-node=1\nsrun bash -c {}" + TORCHRUN.format(n=2, p=8, r="$SLURM_NODEID") + "{}",
         ["'", "'"], ['"', '"'], ("--node_rank", 3)),
        ("#SBATCH -N 2 --ntasks-per-node=1\nsrun {}", [TORCHRUN.format(n=2, p=8, r="$(cat rank)")],
         [TORCHRUN.format(n=2, p=8, r=0)], ("--node_rank", 3)),
        ("#SBATCH -N 2 --ntasks-per-node=8\nexport MASTER_PORT=1\n{}srun {} python t.py",
         ["", "bash -c 'RANK=$SLURM_PROCID exec python t.py' #"], ["export RANK=$SLURM_PROCID; ", ""], ("RANK", 4)),
        (("#SBATCH -N 2 --ntasks-per-node=1\nM=$(hostname)\nsrun bash -c '{}torchrun --nnodes=2 --rdzv_backend=c10d "
         "--rdzv_endpoint='$M':1 t.py'"), [""], ["export MASTER_ADDR=$(hostname); "], None),
        ("for h in $HOSTS; do ssh $h " + TORCHRUN.format(n=2, p=8, r="{}") + "; done", ["$((i++))"], [0],
         ("--node_rank", 2)),
    ],
)  # fmt: skip
def test_scripts(text, right, wrong, expected):
    script = "#!/bin/bash\n" + text + "\n"
    assert said(script.format(*right), "job.sh") == []
    found = said(script.format(*wrong), "job.sh")
    if expected is not None:
        assert found == [(expected[0], f"line {expected[1]}")]


def test_the_batch_script_may_name_its_own_host():
    """`$(hostname)` among srun's arguments is put in once, on the first host."""
    run = "torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$(hostname):1 t.py"
    head = "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=1\n"
    assert said(f"{head}srun {run}\n", "job.sbatch") == []
    assert said(f"{head}srun bash -c '{run}'\n", "job.sbatch") == [("--rdzv_endpoint", "line 3")]


def test_a_number_that_torchrun_ignores():
    run = "torchrun --nnodes=2 --node_rank=0 --rdzv_backend=c10d --rdzv_endpoint=a:1 t.py"
    assert said(f"#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=1\nsrun {run}\n", "job.sbatch") == []


SKY = """num_nodes: 2
resources: {{accelerators: 'H100:8'}}
run: |
  torchrun --nnodes=2 --nproc_per_node={} --node_rank={} --master_addr=$HEAD t.py
"""
COMPOSE = """services:
  a: &a
    image: x
    environment: {{NCCL_SOCKET_IFNAME: eth0}}
    command: torchrun --nnodes=2 --node_rank=0 --master_addr=a --master_port=1 t.py
  b:
    <<: *a
    command: torchrun --nnodes={} --node_rank={} --master_addr=a --master_port=1 t.py
"""
RANKS = """services:
  a: {{image: x, command: python t.py, environment: {{RANK: "0", WORLD_SIZE: "2", MASTER_ADDR: a, MASTER_PORT: "1"}}}}
  b: {{image: x, command: python t.py, environment: {{RANK: "{}", WORLD_SIZE: "2", MASTER_ADDR: a, MASTER_PORT: "1"}}}}
"""
MPI = """apiVersion: kubeflow.org/v2beta1
kind: MPIJob
spec:
  slotsPerWorker: 4
  mpiReplicaSpecs:
    Launcher:
      template: {{spec: {{containers: [{{name: l, image: x, command: [mpirun, -np, "{}", python, t.py]}}]}}}}
    Worker:
      replicas: 2
"""
PYTORCH = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  nprocPerNode: "{}"
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template: {{spec: {{containers: [{{name: p, image: x, resources: {{limits: {{nvidia.com/gpu: 4}}}}}}]}}}}
"""
ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
num_machines: 1
num_processes: {}
gpu_ids: 0,1
"""
NOMAD = """job "t" {{
  group "g" {{
    count = {}
    task "t" {{
      env {{ NCCL_DEBUG = "{}" }}
      config {{
        command = "torchrun"
        args = ["--nnodes=2", "--node_rank=${{NOMAD_ALLOC_INDEX}}", "--master_addr=h", "t.py"]
      }}
    }}
  }}
}}
"""
CONDOR = """executable = /usr/bin/torchrun
arguments = "--nproc_per_node={} t.py"
request_gpus = 2
environment = "NCCL_DEBUG={}"
queue
"""


@pytest.mark.parametrize(
    ("text", "name", "right", "wrong", "expected"),
    [
        (
            SKY,
            "t.yaml",
            [8, "$SKYPILOT_NODE_RANK"],
            [4, 0],
            [("--node_rank", "line 4"), ("--nproc_per_node", "line 4")],
        ),
        (COMPOSE, "compose.yml", [2, 1], [2, 0], [("--node_rank", "line 8")]),
        (RANKS, "compose.yml", [1], [0], [("RANK", "line 3")]),
        (MPI, "job.yaml", [8], [16], [("-np", "line 7")]),
        (PYTORCH, "job.yaml", [4], [8], [("nprocPerNode", "line 4")]),
        (ACCELERATE, "accelerate.yaml", [2], [4], [("gpu_ids", "line 1")]),
        (NOMAD, "job.nomad.hcl", [2, "WARN"], [1, "LOUD"], [("NCCL_DEBUG=LOUD", "line 5"), ("--nnodes", "line 8")]),
        (CONDOR, "job.sub", [2, "WARN"], [4, "LOUD"], [("--nproc_per_node", "line 2"), ("NCCL_DEBUG=LOUD", "line 4")]),
    ],
)
def test_manifests(text, name, right, wrong, expected):
    right_and_wrong(text, name, right, wrong, expected)


JUST = 'export NCCL_DEBUG := "{}"\nn := "2"\ntrain:\n    {}torchrun --standalone --nproc-per-node={{{{n}}}} t.py\n'
FISH = "#!/usr/bin/env fish\nset {} NCCL_DEBUG WARN\nif test -d x\n    set -gx NCCL_ALGO {}\nend\ntorchrun t.py\n"
POE = '[tool.poe.tasks.train]\ncmd = "torchrun --nproc_per_node=2 t.py"\nenv = {{ CUDA_VISIBLE_DEVICES = "{}" }}\n'
PIXI = '[tasks]\nlint = "ruff check"\ntrain = "{} torchrun t.py"\n'
TASKFILE = "version: '3'\ntasks:\n  train:\n    cmds:\n      - {}\n      - torchrun t.py\n"
GITLAB = "train:\n  variables: {{NCCL_DEBUG: WARN}}\n  script:\n    - sudo {} torchrun t.py\n"
UNIT = "[Service]\nEnvironment=MASTER_ADDR={}\nExecStart=/usr/bin/torchrun t.py\n"
CHILD = "import os, subprocess, sys\nsubprocess.run([sys.executable, 't.py'], env={{{}'RANK': {}}})\n"


@pytest.mark.parametrize(
    ("text", "name", "right", "wrong", "expected"),
    [
        (JUST, "justfile", ["WARN", ""], ["LOUD", "sudo "], [("NCCL_DEBUG=LOUD", "line 1"), ("NCCL_DEBUG", "line 1")]),
        (FISH, "run.fish", ["-gx", "Ring"], ["-l", "Rings"], [("NCCL_DEBUG", "line 2"), ("NCCL_ALGO=Rings", "line 4")]),
        (POE, "pyproject.toml", ["0,1"], ["0"], [("CUDA_VISIBLE_DEVICES", "line 2")]),
        (PIXI, "pixi.toml", ["NCCL_DEBUG=WARN"], ["NCCL_DEBUG=LOUD"], [("NCCL_DEBUG=LOUD", "line 3")]),
        (TASKFILE, "Taskfile.yml", ["mkdir -p x"], ["export NCCL_DEBUG=WARN"], [("NCCL_DEBUG", "line 5")]),
        (GITLAB, ".gitlab-ci.yml", ["-E"], [""], [("NCCL_DEBUG", "line 2")]),
        (UNIT, "t.service", ["h0"], ["${HEAD}"], [("MASTER_ADDR", "line 2")]),
        (CHILD, "go.py", ["**os.environ, ", "'0'"], ["", "0"], [("RANK", "line 2"), ("env", "line 2")]),
    ],
)
def test_rules_of_the_formats(text, name, right, wrong, expected):
    right_and_wrong(text, name, right, wrong, expected)


BRANCH = '#!/bin/bash\nif [ "${}" = 0 ]; then\n  export NCCL_ALGO=Tree\nelse\n  export NCCL_ALGO={}\nfi\npython t.py\n'


def test_branches_on_the_rank():
    assert said(BRANCH.format("RANK", "Ring"), "a.sh") == [("NCCL_ALGO", "line 5")]
    assert said(BRANCH.format("RANK", "Tree"), "a.sh") == []
    assert said(BRANCH.format("FABRIC", "Ring"), "a.sh") == []


@pytest.mark.parametrize(
    ("name", "head", "expected"),
    [
        ("train.sh", "# nightly run", ["CUDA_LAUNCH_BLOCKING=1"]),
        ("train.sh", "# the production run", ["CUDA_LAUNCH_BLOCKING=1", "NCCL_DEBUG=INFO"]),
        ("train.sh", "# never for production", ["CUDA_LAUNCH_BLOCKING=1"]),
        ("train.sh", "# finds the failing kernel (debugging)", []),
        ("debug.sh", "# run", []),
    ],
)
def test_debugging_left_on(name, head, expected):
    text = f"#!/bin/bash\n{head}\nexport CUDA_LAUNCH_BLOCKING=1\nexport NCCL_DEBUG=INFO\ntorchrun t.py\n"
    assert [found for found, _ in said(text, name)] == expected


@pytest.mark.parametrize("name", ["a.hcl", "a.fish", "justfile", "a.sub", "a.toml"])
@pytest.mark.parametrize(
    "text", ["/*" * 50_000, "<<A\n" * 20_000, "[" * 50_000, "{" * 50_000, '"' * 50_000, "set -x " * 20_000, ""]
)
def test_odd_texts_are_read_in_time(name, text):
    lint([launch.read(text.encode(), name)])


POD = """apiVersion: v1
kind: Pod
spec:
  containers:
    - name: t
      image: x
      env: [{{name: NPROC, value: "8"}}]
      command: [torchrun, "--nproc_per_node={}", "--out={}", t.py]
"""
SERVICE = """services:
  a:
    image: x
    environment: {{NODE: "0", PORT: "${{PORT}}"}}
    command: sh -c "torchrun --nnodes=2 --node_rank={} --master_addr=a --master_port=$PORT t.py"
"""
DRAWN = """num_nodes: 2
run: |
  P=$((20000 + {} % 1000))
  torchrun --nnodes=2 --node_rank=$SKYPILOT_NODE_RANK --master_addr=$H --master_port=$P t.py
"""
HOSTS = """#!/bin/bash
hosts=(a b {})
for i in "${{!hosts[@]}}"; do
  ssh "${{hosts[$i]}}" torchrun --nnodes=2 --node_rank=$i --master_addr=a --master_port=1 t.py &
done
"""
SPAWN = """import os
import torch.multiprocessing as mp
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
os.environ["MASTER_PORT"] = {}
mp.spawn(work, nprocs={})
"""


@pytest.mark.parametrize(
    ("text", "name", "right", "wrong", "expected"),
    [
        (POD, "pod.yaml", ["$(NPROC)", "${FILLED_IN_BY_ENVSUBST}"], ["$NPROC", "o"], [("NPROC", "line 8")]),
        ("FROM x\nENV NPROC=8\nCMD {} torchrun --nproc_per_node=$NPROC t.py\n", "Dockerfile", [""], ["env"], []),
        ('FROM x\nENV N={}\nCMD ["torchrun", "--nproc_per_node={}", "t.py"]\n', "Dockerfile", [8, 8], [8, "$N"],
         [("N", "line 3")]),
        (SERVICE, "compose.yml", ["$$NODE"], ["$NODE"], [("NODE", "line 5")]),
        ("train:\n\ttorchrun --nproc_per_node={} t.py\n", "Makefile", ["$$NPROC"], ["$NPROC"], [("NPROC", "line 2")]),
        (DRAWN, "sky.yaml", ["SKYPILOT_TASK_SEED"], ["RANDOM"], [("--master_port", "line 3")]),
        (HOSTS, "go.sh", [""], ["c"], [("--nnodes", "line 4")]),
        (SPAWN, "go.py", ["'1'", 2], [1, 4], [("MASTER_PORT", "line 4"), ("CUDA_VISIBLE_DEVICES", "line 5")]),
        ("#!/bin/bash\n#$ -pe mpi 16\nmpirun -np {} python t.py\n", "job.sge", [8], [32], [("-np", "line 3")]),
    ],
)  # fmt: skip
def test_what_each_host_makes_of_it(text, name, right, wrong, expected):
    right_and_wrong(text, name, right, wrong, expected)
