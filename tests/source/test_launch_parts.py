"""Which part of a job a setting or a number belongs to: ranks or others, hosts or ranks, one job or several."""

import pytest

from tests import cost
from whichrank.flows.env.lint import lint
from whichrank.source import launch
from whichrank.source.shell import host_lists


def said(text, name):
    found = lint([launch.read(text.encode(), name)]).findings
    return [(f.message.split()[0].rstrip(":"), f.subject.code[0].line) for f in found if f.severity != "info"]


NAMES = """import os, subprocess
SLOW = {{"CUDA_LAUNCH_BLOCKING": "1", "NCCL_IB_DISABLE": "true"}}
env = dict(os.environ)
for k, v in SLOW.items():
    {}
subprocess.run(["torchrun", "--nproc-per-node=8", "t.py"], env=env)
"""
SET = [("NCCL_IB_DISABLE=true", 2), ("CUDA_LAUNCH_BLOCKING=1", 2)]
TABLE = 'OLD_ENV = {{"NCCL_BLOCKING_WAIT": "{}"}}\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NAMES.format('print(f"setting {k}={v}"); env[k] = v'), SET),
        (NAMES.format('args.append(f"{k}={v}")'), SET),
        (NAMES.format('print(f"dropping {k}={v}"); del env[k]'), []),
        (NAMES.format('problems.append(f"{k} is {v}, which is slow")'), []),
        (NAMES.format('assert env[k] == v, f"{k}={env[k]}, wanted {v}"'), []),
        (NAMES.format('if env[k] != v: raise SystemExit(f"{k}={env[k]}")'), []),
        (NAMES.replace("for k, v in SLOW.items():", "if SLOW.items() <= env.items():").format("exit(1)"), []),
        (TABLE.format("TORCH_NCCL_BLOCKING_WAIT"), []),
        (TABLE.format("makes collectives wait"), []),
        (TABLE.format("maybe"), [("NCCL_BLOCKING_WAIT=maybe:", 1)]),
    ],
)
def test_a_table_of_names_sets_nothing(text, expected):
    found = [(name.rstrip(":"), line) for name, line in expected]
    assert said(text, "t.py") == found


SERVICES = """services:
  a:
    image: i
    environment: {{NCCL_ALGO: Ring}}
    command: {0}
  b:
    image: i
    profiles: [compare]
    environment: {{NCCL_ALGO: Tree}}
    command: {0}
"""


@pytest.mark.parametrize(
    ("command", "alone"),
    [
        ("torchrun --standalone --nproc-per-node=2 t.py", True),
        ("torchrun --nproc-per-node=2 t.py", True),
        ("[torchrun, --nnodes=1, --nproc-per-node=2, t.py]", True),
        ("python t.py", True),
        ("torchrun --nnodes=2 --nproc-per-node=2 --node-rank=$$R --master-addr=a t.py", False),
    ],
)
def test_services_that_are_jobs_of_their_own_may_differ(command, alone):
    assert said(SERVICES.format(command), "compose.yml") == ([] if alone else [("NCCL_ALGO", 9)])


POD = """apiVersion: v1
kind: Pod
spec:
  {}
  containers:
    - name: other
      image: o
      env: [{{name: {}, value: "{}"}}]
    - name: train
      image: t
      resources: {{limits: {{{}: 4}}}}
"""
RAY = """apiVersion: ray.io/v1
kind: RayCluster
spec:
  headGroupSpec:
    template: {{spec: {{containers: [{{image: r, env: [{{name: NCCL_IB_HCA, value: mlx5_0}}]{}}}]}}}}
  workerGroupSpecs:
    - template: {{spec: {{containers: [{{image: r, env: [{{name: {}, value: mlx5_0}}],
        resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]}}}}
"""
DETERMINED = "entrypoint: python t.py\nenvironment:\n  environment_variables:\n    cpu: [{}=1]\n    cuda: [{}=1]\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (POD.format("", "NCCL_IB_HCA", "mlx5_0", "nvidia.com/gpu"), [("NCCL_IB_HCA", 8)]),
        (POD.format("", "NCCL_LOG_PATTERN", "x", "nvidia.com/gpu"), []),
        (POD.format("", "NCCL_LOG_PATTERN", "x", "cpu"), [("NCCL_LOG_PATTERN", 8)]),
        (POD.format("", "NCCL_IB_HCA", "mlx5_0", "nvidia.com/gpu").replace("image: t", "envFrom: [{}]"), []),
        (RAY.format("", "HF_HOME"), [("NCCL_IB_HCA", 5)]),
        (RAY.format("", "NCCL_IB_HCA"), []),
        (RAY.format(", resources: {limits: {nvidia.com/gpu: 8}}", "HF_HOME"), []),
        (DETERMINED.format("NCCL_IB_DISABLE", "NCCL_TIMEOUT"), [("NCCL_IB_DISABLE", 4), ("NCCL_TIMEOUT", 5)]),
        (DETERMINED.format("NCCL_IB_DISABLE", "NCCL_IB_DISABLE"), []),
        (DETERMINED.format("OMP_NUM_THREADS", "NCCL_IB_DISABLE"), []),
    ],
)
def test_what_no_rank_gets(text, expected):
    assert said(text, "job.yaml") == expected


@pytest.mark.parametrize(
    ("host", "value", "found"),
    [
        ("", "^lo,docker,eth", True),
        ("", "^lo,docker", False),
        ("", "bond0", True),
        ("", "net1", False),
        ("hostNetwork: true", "^lo,eth", False),
        ("hostNetwork: true", "bond0", False),
    ],
)
def test_interfaces_of_a_pod(host, value, found):
    text = POD.format(host, "NCCL_SOCKET_IFNAME", value, "cpu")
    assert said(text, "job.yaml") == ([("NCCL_SOCKET_IFNAME", 8)] if found else [])
    assert said(text.replace("cpu", "rdma/hca"), "job.yaml") == []


VALUES = "hostNetwork: {}\npodNetworks: {}\nenv:\n  NCCL_SOCKET_IFNAME: ^lo,eth\n"


@pytest.mark.parametrize(
    ("shared", "others", "found"), [("false", "[]", True), ("false", "[a]", False), ("true", "[]", False)]
)
def test_networks_that_values_of_a_chart_rule_out(shared, others, found):
    assert said(VALUES.format(shared, others), "values.yaml") == ([("NCCL_SOCKET_IFNAME", 4)] if found else [])


INDEXED = """apiVersion: batch/v1
kind: Job
spec:
  completionMode: Indexed
  completions: 4
  {}
  template:
    spec:
      containers:
        - image: a
          command: [sh, -c, "torchrun --nnodes={} --node-rank=$JOB_COMPLETION_INDEX --master-addr=a t.py"]
"""


@pytest.mark.parametrize(
    ("together", "nodes", "found"),
    [("parallelism: 2", "4", True), ("", "4", True), ("parallelism: 4", "4", False), ("parallelism: 2", "1:4", False)],
)
def test_pods_that_don_t_run_together(together, nodes, found):
    assert said(INDEXED.format(together, nodes), "job.yaml") == ([("--nnodes", 11)] if found else [])


PBS = """#PBS -l {}
N=$({})
pbsdsh -- torchrun --nnodes=$N --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=$H:29500 t.py
"""
TWICE = "select=2:ncpus=8:ngpus=4:mpiprocs=4"


@pytest.mark.parametrize(
    ("asked", "counted", "found"),
    [
        (TWICE, 'wc -l < "$PBS_NODEFILE"', True),
        (TWICE, "cat $PBS_NODEFILE | wc -l", True),
        (TWICE, "wc -l $PBS_NODEFILE | awk '{print $1}'", True),
        ("nodes=2:ppn=4", "wc -l < $PBS_NODEFILE", True),
        (TWICE, "sort -u $PBS_NODEFILE | wc -l", False),
        ("select=2:ncpus=8:ngpus=4", "wc -l < $PBS_NODEFILE", False),
    ],
)
def test_lines_of_a_file_of_hosts(asked, counted, found):
    assert said(PBS.format(asked, counted), "job.pbs") == ([("N", 2)] if found else [])


def test_lines_that_only_a_run_would_count():
    assert said(PBS.format(TWICE, "wc -l < $PBS_NODEFILE").partition("\n")[2].replace("=$N", "=2"), "job.pbs") == []


def test_the_length_of_an_array():
    text = "#SBATCH --nodes=2\nH=(a b c)\nsrun torchrun --nnodes=${#H[@]} --rdzv-backend=c10d --rdzv-endpoint=a t.py\n"
    assert said(text, "job.sbatch") == [("--nnodes", 3)]
    assert said(text.replace("a b c", "a b"), "job.sbatch") == []
    assert said(text.replace("a b c", "a $B c"), "job.sbatch") == []


LAST = """#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
L=($(scontrol show hostnames $SLURM_JOB_NODELIST))
HEAD={}
srun bash -c "torchrun --nnodes=2 --nproc-per-node=8 {} t.py"
"""
STATIC = r"--node-rank=\$SLURM_NODEID --master-addr=$HEAD"


@pytest.mark.parametrize(
    ("head", "options", "found"),
    [
        ("$(scontrol show hostnames $SLURM_JOB_NODELIST | tail -n 1)", STATIC, True),
        ("${L[-1]}", STATIC, True),
        ("${L[0]}", STATIC, False),
        ("$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)", STATIC, False),
        ("${L[-1]}", "--rdzv-backend=c10d --rdzv-endpoint=$HEAD:29500", False),
    ],
)
def test_the_last_host_as_the_meeting_point(head, options, found):
    assert said(LAST.format(head, options), "job.sbatch") == ([("--master-addr", 4)] if found else [])


ROUNDS = """for i in 0 1; do
  {}torchrun --nproc-per-node=1 --master-port={} t.py $i &{}
done
wait
"""


@pytest.mark.parametrize(
    ("before", "port", "after", "found"),
    [
        ("", "29500", "", True),
        ("docker run --network=host i ", "29500", "", True),
        ("", "$((29500 + i))", "", False),
        ("", "29500", "\n  wait $!", False),
        ("docker run i ", "29500", "", False),
        ("ssh host$i ", "29500", "", False),
    ],
)
def test_jobs_side_by_side(before, port, after, found):
    assert said(ROUNDS.format(before, port, after), "run.sh") == ([("--master-port", 2)] if found else [])


def test_jobs_one_after_the_other():
    one = "torchrun --nproc-per-node=1 --master-port=29500 t.py"
    assert said(f"( {one}; {one} ) &\nwait\n{one}\n", "run.sh") == []
    assert said(f"{one} &\n{one}\n", "run.sh") == [("--master-port", 2)]


@pytest.mark.parametrize(
    ("tasks", "command", "found"),
    [
        (1, "python t.py trainer.devices=8", True),
        (1, "python -m t fit --trainer.devices 8", True),
        (8, "python -m t fit --trainer.devices=8", False),
        (1, "torchrun --standalone --nproc-per-node=8 t.py --trainer.devices=8", False),
        (1, "python t.py trainer.devices=auto", False),
    ],
)
def test_tasks_of_lightning(tasks, command, found):
    text = f"#SBATCH --nodes=1\n#SBATCH --ntasks-per-node={tasks}\n#SBATCH --gpus-per-node=8\nsrun {command}\n"
    assert said(text, "job.sbatch") == ([("--ntasks-per-node", 2)] if found else [])


ROLE = """import torchx.specs as specs
NODE = specs.Resource(cpu=8, gpu={})
CMD = [
    "torchrun",
    "--nproc-per-node", "8",
    "t.py",
]
role = specs.Role(name="t", image="i", resource=NODE, entrypoint="bash", args=["-c", " ".join(CMD)])
"""
CONTAINER = """from kubernetes import client
client.V1Container(name="t", command=["torchrun", "--nproc-per-node=8", "t.py"],
    resources=client.V1ResourceRequirements(limits={{"nvidia.com/gpu": "{}"}}))
"""
DDP = 'from torchx.components import dist\ndist.ddp(script="t.py", j="2x8", gpu={})\n'


@pytest.mark.parametrize(
    ("text", "place"), [(ROLE, ("--nproc-per-node", 5)), (CONTAINER, ("--nproc-per-node", 2)), (DDP, ("j", 2))]
)
def test_commands_that_a_program_describes(text, place):
    assert said(text.format(4), "component.py") == [place]
    assert said(text.format(8), "component.py") == []


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", 60, True),
        ("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", 500, False),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", 1_800_000, True),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", 604_800, False),
    ],
)
def test_a_unit_that_can_t_be_meant(name, value, found):
    assert said(f"export {name}={value}\ntorchrun --standalone t.py\n", "run.sh") == (
        [(f"{name}={value}", 1)] if found else []
    )


def test_texts_made_of_one_another_stay_bounded():
    rows = [f"a{i + 1} = ' '.join([{f'a{i},' * 300}])\nb{i + 1} = [{f'*b{i},' * 300}]" for i in range(8)]
    text = (
        "import subprocess\na0 = 'x'\nb0 = ['x']\n"
        + "\n".join(rows)
        + "\nsubprocess.run(a8, shell=True)\nsubprocess.run(b8)\n"
    )
    with cost.at_most(5):
        launch.read(text.encode(), "t.py")


@pytest.mark.parametrize("judge", [host_lists.counted, host_lists.whole, host_lists.is_last, host_lists.is_list])
def test_lists_of_hosts_cost_linear_time(judge):
    with cost.at_most(1):
        judge("cat $PBS_NODEFILE " + "SLURM_NODELIST $( " * 100_000)


def test_a_launcher_kept_in_a_variable_of_the_script():
    text = """#SBATCH --gres=gpu:4
N={}
RUN="torchrun --nnodes $SLURM_NNODES --nproc_per_node $N --rdzv_backend c10d --rdzv_endpoint $HEAD"
srun bash -c "$RUN t.py --name 'a \\"b\\"'"
"""
    assert said(text.format(8), "job.sbatch") == [("--nproc_per_node", 4)]
    assert said(text.format(4), "job.sbatch") == []


MAKE = "{}:\n\tTORCH_DISTRIBUTED_DEBUG=DETAIL torchrun --standalone t.py\n"
COMPOSE = """services:
  {}:
    image: i
    environment: {{CUDA_LAUNCH_BLOCKING: "1"}}
    command: torchrun --standalone t.py
"""


@pytest.mark.parametrize(
    ("text", "name", "place"),
    [
        (MAKE, "Makefile", ("TORCH_DISTRIBUTED_DEBUG=DETAIL", 2)),
        (COMPOSE, "compose.yml", ("CUDA_LAUNCH_BLOCKING=1", 4)),
    ],
)
def test_costly_settings_belong_into_a_block_for_debugging(text, name, place):
    assert said(text.format("train"), name) == [place]
    assert said(text.format("train-debug"), name) == []
    assert said(text.format("smoke"), name) == []


def test_numbers_that_slurm_leaves_to_its_script():
    text = """#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
srun --ntasks-per-node=1 torchrun --nnodes={} --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=$H t.py
"""
    assert said(text.format("$SLURM_NTASKS"), "job.sbatch") == [("--nnodes", 3)]
    assert said(text.format("$SLURM_NNODES"), "job.sbatch") == []
    there = text.replace("torchrun", "bash -c 'torchrun").replace("t.py", "t.py'")
    assert said(there.format("$SLURM_NTASKS"), "job.sbatch") == []


@pytest.mark.parametrize("kind", ["kubectl apply -f -", "cat > job.yaml"])
def test_a_manifest_in_a_here_document(kind):
    text = f"{kind} <<E\n{POD.format('', 'NCCL_IB_DISABLE', 'true', 'cpu')}E\n"
    assert said(text, "submit.sh") == [("NCCL_IB_DISABLE=true", 9)]


MPI = "mpirun -H a:8,b:8 -np 16 -x NCCL_ALGO {}python t.py"


def test_the_first_host_may_start_all_ranks():
    text = 'if [ "$NODE_RANK" = 0 ]; then\n  export NCCL_ALGO=Ring\n  {}\nelse\n  echo waits\nfi\n{}\n'
    assert said(text.format(MPI.format(""), ""), "run.sh") == []
    one = "torchrun --nnodes=2 --node-rank=$NODE_RANK --master-addr=a t.py"
    assert said(text.format("echo first", one), "run.sh") == [("NCCL_ALGO", 2)]


def test_a_value_that_is_handed_on():
    text = "(export NCCL_DEBUG=INFO; mpirun -H a:8,b:8 -np 16 -x {} python t.py)\n"
    assert said(text.format('NCCL_DEBUG="$NCCL_DEBUG"'), "run.sh") == []


OWN = """apiVersion: v1
kind: Pod
spec:
  containers:
    - image: a
      env: [{{name: {}, value: "{}"}}]
      command: [sh, -c, 'echo "${}"; torchrun --standalone t.py']
"""


@pytest.mark.parametrize(
    ("name", "value", "used", "found"),
    [
        ("NCCL_SPEED_CLASS", "8", "NCCL_SPEED_CLASS", False),
        ("NCCL_SPEED_CLASS", "8", "OTHER", True),
        ("NCCL_SOCKET_IFNAMES", "eth0", "NCCL_SOCKET_IFNAMES", True),
        ("HF_TOKEN", "${HF_TOKEN}", "OTHER", False),
        ("LD_LIBRARY_PATH", "/x:$LD_LIBRARY_PATH", "OTHER", True),
    ],
)
def test_names_that_the_file_itself_uses(name, value, used, found):
    assert said(OWN.format(name, value, used), "job.yaml") == ([(name, 6)] if found else [])
