"""Mistakes that make a job fail on several hosts, beside the right form of each; every finding names its line."""

import json

import pytest

from tests import cost
from whichrank.flows.env.lint import lint
from whichrank.source import launch

TORCHRUN = "torchrun --nnodes=2 --nproc-per-node=4"


def findings(text, name):
    return [f for f in lint([launch.read(text.encode(), name)]).findings if f.severity != "info"]


def said(text, name):
    return [(f.message.split()[0].rstrip(":"), f.subject.code[0].line) for f in findings(text, name)]


CSH = (
    "#!/bin/tcsh\nif ($#argv < 1) then\n  exit 1\nendif\n{}\n"
    "switch (`hostname`)\n  case a:\n  case b:\n    set g = 4\n    breaksw\nendsw\ntorchrun --nproc-per-node=$g t.py\n"
)
POD = """apiVersion: v1
kind: Pod
metadata:
  annotations:
    k8s.v1.cni.cncf.io/networks: '{}'
spec:
  containers:
    - image: a
      env:
        - name: NCCL_SOCKET_IFNAME
          value: {}
"""
SHM = """apiVersion: v1
kind: Pod
spec:
  containers:
    - image: a
      command: [torchrun, --nproc-per-node=4, t.py]
      volumeMounts: [{{name: s, mountPath: /dev/shm}}]
  volumes:
    - name: s
      emptyDir: {{medium: Memory, sizeLimit: {}}}
"""
COMPOSE = (
    "services:\n  a:\n    image: i\n    {}\n"
    "    environment: {{NCCL_IB_HCA: mlx5}}\n    command: torchrun --standalone --nproc-per-node=4 t.py\n"
)
UNIT = "[Service]\nEnvironment=NCCL_IB_HCA=mlx5\nLimitMEMLOCK={}\nExecStart=/usr/bin/torchrun --standalone t.py\n"
PROGRAM = """import os, subprocess, sys
def env(a, i):
    return {{**os.environ, "RANK": str(a.node * a.each + i), "WORLD_SIZE": {}}}
subprocess.Popen([sys.executable, "t.py"], env=env(a, 0))
"""
UPDATED = """import os, subprocess
env = dict(os.environ)
env.update(RANK=str(N * 8 + i), WORLD_SIZE={})
subprocess.Popen(["python", "t.py"], env=env)
"""
WRITTEN = (
    "#SBATCH -N 4 --ntasks-per-node=1\n"
    "cat > n.sh <<{}\n#!/bin/bash\n"
    "torchrun --nnodes=4 --rdzv-backend=c10d --rdzv-endpoint=$(hostname):1 t.py\nE\nsrun n.sh\n"
)
BATCH = {
    "nodeProperties": {
        "numNodes": 2,
        "nodeRangeProperties": [
            {"container": {"image": "i", "command": ["torchrun", "--nnodes=2", "--node-rank={}", "t.py"]}},
        ],
    }
}
ACCELERATE = (
    "# hosts a b, {} x A100 each\ncompute_environment: LOCAL\ndistributed_type: FSDP\n"
    "num_machines: 2\nnum_processes: 8\n"
)
LISTED = "services:\n  a:\n    image: i\n    environment:\n      - {}\n    command: python t.py\n"
TWICE = """apiVersion: v1
kind: Pod
spec:
  containers:
    - image: a
      env:
        - {{name: NCCL_ALGO, value: Ring}}
        - {{name: NCCL_ALGO, value: {}}}
"""
ONE_WORD = """apiVersion: v1
kind: Pod
spec:
  containers:
    - image: a
      command: [sh, -c, {}]
"""
EDITOR = """{{"configurations": [{{
  "module": "torch.distributed.run",
  "args": ["--nproc_per_node=2", "t.py"],
  "env": {{"CUDA_VISIBLE_DEVICES": "{}"}}}}]}}
"""
RAY = """import os, ray
os.environ["NCCL_DEBUG"] = "INFO"
ray.init(address="auto", runtime_env={{"env_vars": {{{}}}}})
@ray.remote(num_gpus=1)
def work():
    import torch.distributed as dist
    dist.init_process_group("nccl")
"""
MPI = "export NCCL_IB_HCA=mlx5\nmpirun -np 8 --hostfile h --mca plm rsh {} python t.py\n"


@pytest.mark.parametrize(
    ("name", "text", "right", "wrong", "expected"),
    [
        ("a.csh", CSH, ["setenv NCCL_DEBUG INFO"], ["set NCCL_DEBUG = INFO"], ("NCCL_DEBUG", 5)),
        (
            "a.pbs",
            "#PBS -S /bin/csh\n{}\ntorchrun t.py",
            ["setenv NCCL_DEBUG INFO"],
            ["set NCCL_DEBUG=INFO"],
            ("NCCL_DEBUG", 2),
        ),
        ("p.yaml", POD, ["a@net1", "net1"], ["a@net1", "net2"], ("NCCL_SOCKET_IFNAME", 10)),
        (
            "p.yaml",
            POD,
            ['[{"name": "x"}]', "net"],
            ['[{"name": "x", "interface": "r0"}]', "net1"],
            ("NCCL_SOCKET_IFNAME", 10),
        ),
        ("p.yaml", SHM, ["8Gi"], ["64Mi"], ("sizeLimit", 10)),
        ("c.yaml", COMPOSE, ["shm_size: 2g"], ["shm_size: 64m"], ("shm_size", 4)),
        ("c.yaml", COMPOSE, ["ulimits: {memlock: -1}"], ["ulimits: {memlock: 65536}"], ("memlock", 4)),
        ("c.yaml", COMPOSE, ["ipc: host"], ["ulimits: {memlock: {soft: 65536, hard: -1}}"], ("soft", 4)),
        (
            "d.sh",
            "docker run --shm-size {} {} i torchrun --nproc-per-node=2 t.py",
            ["64m", "--ipc=host"],
            ["64m", ""],
            ("--shm-size", 1),
        ),
        ("u.service", UNIT, ["infinity"], ["64K"], ("LimitMEMLOCK", 3)),
        ("l.sh", "export NCCL_IB_HCA=mlx5\nulimit -l {}\ntorchrun t.py", ["unlimited"], ["64"], ("ulimit", 2)),
        ("w.py", PROGRAM, ["str(a.nodes * a.each)"], ["str(a.each)"], ("WORLD_SIZE", 3)),
        ("w.py", UPDATED, ["str(M * 8)"], ["'8'"], ("WORLD_SIZE", 3)),
        (
            "w.sh",
            "export RANK=$((NODE * GPUS + i))\nexport WORLD_SIZE={}\npython t.py",
            ["$((N * GPUS))"],
            ["$GPUS"],
            ("WORLD_SIZE", 2),
        ),
        (
            "w.sbatch",
            "#SBATCH -N 2 --ntasks-per-node=4\nexport WORLD_SIZE=${}\nsrun python t.py",
            ["SLURM_NTASKS"],
            ["SLURM_NNODES"],
            ("WORLD_SIZE", 2),
        ),
        ("h.sbatch", WRITTEN, ["E"], ["'E'"], ("--rdzv-endpoint", 4)),
        ("m.sh", MPI, ["-x NCCL_IB_HCA"], [""], ("NCCL_IB_HCA", 1)),
        ("t.sh", "export NCCL_IB_TIMEOUT={}\ntorchrun t.py", ["31"], ["32"], ("NCCL_IB_TIMEOUT=32", 1)),
        ("s.sh", "torchrun --standalone --nnodes={} t.py", ["1"], ["2"], ("--standalone", 1)),
        (
            "n.sbatch",
            "#SBATCH -N 2\nexport MASTER_ADDR={}\nsrun python t.py",
            ["$(scontrol show hostnames | head -1)"],
            ["$SLURM_JOB_NODELIST"],
            ("MASTER_ADDR", 2),
        ),
        ("o.sbatch", "{}\necho x\n{}\nsrun python t.py", ["#SBATCH -c 8", "#"], ["#", "#SBATCH -c 8"], ("-c", 3)),
        (
            "b.json",
            json.dumps(BATCH).replace("{", "{{").replace("}", "}}").replace("{{}}", "{}"),
            ["$AWS_BATCH_JOB_NODE_INDEX"],
            ["0"],
            ("--node-rank", 1),
        ),
        (
            "g.yaml",
            ACCELERATE,
            [4],
            [8],
            ("num_processes", 5),
        ),
        (
            "x.sh",
            "torchrun {} t.py {}",
            ["--nproc-per-node=8", ""],
            ["", "--nproc-per-node=8"],
            ("--nproc-per-node", 1),
        ),
        (
            "p.sh",
            "torchrun --master-port={} a.py &\ntorchrun --master-port=29500 b.py",
            [29501],
            [29500],
            ("--master-port", 2),
        ),
        (
            "q.sh",
            "export NCCL_SOCKET_IFNAME={}\npython t.py",
            ['"eth0"'],
            ["\u201ceth0\u201d"],
            ("NCCL_SOCKET_IFNAME", 1),
        ),
        ("a.sh", "H=$(f)\nexport MASTER_ADDR={}\npython t.py", ["$H"], ["$H:29500"], ("MASTER_ADDR", 2)),
        (
            "f.sh",
            "export NCCL_DEBUG_FILE=$D/{}.log\npython t.py",
            ["%h.%p"],
            ["nccl"],
            ("NCCL_DEBUG_FILE=…/nccl.log", 1),
        ),
        ("e.yaml", LISTED, ["NCCL_DEBUG=INFO"], ["NCCL_DEBUG: INFO"], ("NCCL_DEBUG", 5)),
        ("k.yaml", TWICE, ["Ring"], ["Tree"], ("NCCL_ALGO", 8)),
        ("s.yaml", ONE_WORD, ['"cd /w && torchrun t.py"'], ['"cd /w", "&&", "torchrun t.py"'], ("-c", 6)),
        ("l.json", EDITOR, ["0,1"], ["0"], ("CUDA_VISIBLE_DEVICES", 2)),
        ("r.py", RAY, ['"NCCL_DEBUG": "INFO"'], [""], ("NCCL_DEBUG", 2)),
    ],
)
def test_the_mistake_and_its_right_form(name, text, right, wrong, expected):
    assert said(text.format(*right), name) == []
    assert said(text.format(*wrong), name) == [expected]


@pytest.mark.parametrize(
    "count", ["i=$((i + 1))", "((i++))", "let i+=1", "(( i += 1 ))", "i=$(expr $i + 1)", "if true; then ((++i)); fi"]
)
def test_a_counter_of_a_loop_over_unknown_hosts_is_no_constant(count):
    loop = "i=0\nfor h in $HOSTS; do\n ssh $h " + TORCHRUN + " --node-rank=$i --master-addr=a t.py &\n {}\ndone\n"
    assert said(loop.format(count), "a.sh") == []
    assert said(loop.format(":"), "a.sh") == [("--node-rank", 3)]


def test_a_script_that_is_written_gets_what_it_is_started_with():
    text = "cat > w.sh <<'E'\n#!/bin/bash\nexec python t.py\nE\nexport NCCL_DEBUG=WARN\nsrun --export={} bash w.sh\n"
    assert said(text.format("ALL"), "a.sbatch") == []
    assert said(text.format("PATH"), "a.sbatch") == [("NCCL_DEBUG", 5)]


def test_an_address_given_to_torchrun_is_not_missing():
    text = f"export MASTER_ADDR=h0\n{TORCHRUN} --node-rank=$R --master-addr=h0 --master-port=29500 t.py\n"
    assert lint([launch.read(text.encode(), "a.sh")]).findings == ()


@pytest.mark.parametrize("line", ["set x =" + " " * 200_000 + "#", "case " + " :" * 50_000, "if (" * 40_000 + ") x"])
def test_hostile_csh_takes_no_time(line):
    with cost.at_most(2):
        launch.read(f"#!/bin/csh\n{line}\n".encode(), "a.csh")
