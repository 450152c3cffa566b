"""What programs, their arguments and the files beside them say of a launch; beside each mistake its right form."""

import pytest

from whichrank.flows.env.lint import lint
from whichrank.source import launch


def said(text, name):
    found = lint([launch.read(text.encode(), name)]).findings
    return [(f.message.split()[0].rstrip(":"), f.subject.code[0].line) for f in found if f.severity != "info"]


DSTACK = "type: task\nnodes: 2\nenv:\n  - {}=ens5\ncommands:\n  - torchrun --nproc-per-node=2 t.py --backend gloo\n"
BATCH = """cat > ds.json <<{}
{{
  "train_batch_size": {},
  "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": $STEPS
}}
E
deepspeed --num_nodes 2 --num_gpus 8 t.py --deepspeed_config ds.json
"""
POOL = "cat > pool <<E\na slots=8\n{} slots=8\nE\ndeepspeed --hostfile pool t.py\n"
RAY_JOB = """{{
"entrypoint": "python t.py --num-workers {} --gpus-per-node 8",
"runtime_env": {{"env_vars": {{
"NCCL_SOCKET_IFNAME": "lo"}}}}}}
"""
BRANCHES = """COMMON="--nnodes=2 --node-rank=$NODE_RANK --master-addr=$H --nproc-per-node=8"
if [ "${}" = 0 ]; then
  torchrun $COMMON --master-port=29500 t.py
else
  torchrun $COMMON --master-port=29501 t.py
fi
"""
CASES = "case $NODE_RANK in\n" + "".join(
    f"{arm}) torchrun --nnodes=2 --node-rank=$NODE_RANK --master-addr=$H --master-port={port} t.py;;\n"
    for arm, port in (("0", "29500"), ("*", "{}"))
)
SPAWN = """import os, subprocess
HOSTS = [{}]
def made(node, local):
    env = dict(os.environ)
    env.update(WORLD_SIZE=str(len(HOSTS) * 4), LOCAL_RANK=str(local),
               RANK=str({}))
    return env
subprocess.Popen(["python", "t.py"], env=made(0, 1))
"""
STEP = """on: push
jobs:
  a:
    steps:
      - env: {{CUDA_VISIBLE_DEVICES: "{}"}}
        run: torchrun --standalone --nproc-per-node=2 -m pytest
"""
GROUP = """apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
spec:
  leaderWorkerTemplate:
    size: {}
    {}
      spec:
        containers:
          - image: a
            command: [torchrun, --nnodes=2, --rdzv-backend=c10d, --rdzv-endpoint=h:1, t.py]
"""
JOB_SET = """apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
spec:
  replicatedJobs:
    - name: a
      replicas: 2
      template:
        spec:
          parallelism: {}
          template:
            spec:
              containers:
                - image: a
                  command: [torchrun, --nnodes=4, --rdzv-backend=c10d, --rdzv-endpoint=h:1, t.py]
"""
CLOUD = 'E = {{"NCCL_DEBUG": "WARN"}}\nx = Job(instance_count={}, environment={{**E, "NCCL_SOCKET_IFNAME": "lo"}})\n'
SUBMITTED = "executor.update_parameters(nodes=2,\n tasks_per_node={}, gpus_per_node=4)\n"
DECORATED = 'import f\n@f.task(task_config=f.Elastic(nnodes=2, nproc_per_node={}), limits=f.R(gpu="4"))\ndef t(): ...\n'
PROGRAMS = """[supervisord]
nodaemon=true
[program:a]
command=torchrun --standalone --nproc-per-node=4 t.py
environment=NCCL_DEBUG="WARN",
    NCCL_IB_DISABLE="{}"
"""
FLUX = "#flux: -N 4\nflux run -N {} --tasks-per-node=1 torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=h:1 t.py"
JSRUN = (
    "#BSUB -nnodes 2\njsrun -n 2 -a 1 -g {} torchrun --nnodes=2 --nproc-per-node=6 --rdzv-backend=c10d "
    "--rdzv-endpoint=h:1 t.py"
)
LIGHTNING = "#SBATCH -N 4 --ntasks-per-node=2\nsrun python t.py fit --trainer.devices=2 --trainer.num_nodes={}"
LOCAL = "for i in 0 1; do\nRANK={} LOCAL_RANK=$i WORLD_SIZE=$((N * 2)) python t.py &\ndone"


@pytest.mark.parametrize(
    ("name", "text", "right", "wrong", "expected"),
    [
        ("c.yml", DSTACK, ["GLOO_SOCKET_IFNAME"], ["NCCL_SOCKET_IFNAME"], ("NCCL_SOCKET_IFNAME", 4)),
        ("b.sh", "STEPS=2\n" + BATCH, ["E", 256], ["E", 512], ("train_batch_size", 4)),
        (
            "b.sh",
            BATCH.replace('"gradient_accumulation_steps": $STEPS', '"fp16": 1'),
            ["'E'", 256],
            ["'E'", 200],
            ("train_batch_size", 3),
        ),
        ("p.sh", POOL, ["b"], ["a"], ("a", 3)),
        ("h.deepspeed", "# pool\na slots=8\n{} slots=4\n", ["b"], ["a"], ("a", 3)),
        ("r.json", RAY_JOB, [8], [16], ("NCCL_SOCKET_IFNAME", 4)),
        ("i.sh", BRANCHES, ["MODE"], ["SKYPILOT_NODE_RANK"], ("--master-port", 5)),
        ("k.sh", CASES, [29500], [29501], ("--master-port", 3)),
        ("s.py", SPAWN, ["'a', 'b'", "node * 4 + local"], ["'a', 'b'", "local"], ("RANK", 6)),
        ("s.py", SPAWN, ["'a'", "local"], ["'a', 'b'", "local"], ("RANK", 6)),
        ("n.sh", LOCAL, ["$((H * 2 + i))"], ["$i"], ("RANK", 2)),
        ("g.yml", STEP, ["0,1"], ["0"], ("CUDA_VISIBLE_DEVICES", 6)),
        ("l.yaml", GROUP, [2, "workerTemplate:"], [3, "workerTemplate:"], ("--nnodes", 10)),
        ("j.yaml", JOB_SET, [2], [1], ("--nnodes", 14)),
        ("c.py", CLOUD, [1], [2], ("NCCL_SOCKET_IFNAME", 2)),
        ("u.py", SUBMITTED, [4], [8], ("tasks_per_node", 2)),
        ("d.py", DECORATED, [4], [8], ("nproc_per_node", 2)),
        ("x.conf", PROGRAMS, [1], ["yes"], ("NCCL_IB_DISABLE=yes", 6)),
        ("f.sh", FLUX, [2], [4], ("--nnodes", 2)),
        ("j.lsf", JSRUN, [6], [4], ("--nproc-per-node", 2)),
        ("t.sbatch", LIGHTNING, [4], [2], ("--trainer.num_nodes", 2)),
    ],
)
def test_the_mistake_and_its_right_form(name, text, right, wrong, expected):
    assert said(text.format(*right), name) == []
    assert said(text.format(*wrong), name) == [expected]


@pytest.mark.parametrize(
    "use",
    [
        "env = {k: v for k, v in os.environ.items() if k not in OLD}",
        "for name in OLD:\n    os.environ.pop(name, None)",
        "for name, why in OLD.items():\n    if name in os.environ:\n        print(f'{name}: {why}')",
        "rows = [f'{name}: {why}' for name, why in sorted(OLD.items())]",
    ],
)
def test_a_dictionary_that_only_names_variables_sets_none(use):
    assert said(f'import os\nOLD = {{"NCCL_LL_THRESHOLD": "0"}}\n{use}\n', "a.py") == []


@pytest.mark.parametrize(
    "use",
    [
        "os.environ.update(OLD)",
        "for name, value in OLD.items():\n    os.environ[name] = value",
        "words = [f'{name}={value}' for name, value in OLD.items()]",
        "run(env={**os.environ, **OLD})",
        "pod = [Variable(name, value) for name, value in OLD.items()]",
    ],
)
def test_a_dictionary_that_goes_into_an_environment_counts(use):
    found = said(f'import os\nOLD = {{"NCCL_LL_THRESHOLD": "0"}}\n{use}\n', "a.py")
    assert found == [("NCCL_LL_THRESHOLD", 2)]


def test_a_program_on_nccl_reads_what_one_on_gloo_does_not():
    text = "export NCCL_SOCKET_IFNAME=ens5\ntorchrun --standalone t.py{}\ntorchrun --standalone e.py --backend=gloo\n"
    assert said(text.format(""), "a.sh") == []
    assert said(text.format(" --dist-backend gloo"), "a.sh") == [("NCCL_SOCKET_IFNAME", 1)]


@pytest.mark.parametrize("argument", ["--tensor-model-parallel-size 2", "--pipeline_parallel 2", "--tp 2"])
def test_the_batch_of_a_model_in_parts_is_not_judged(argument):
    text = BATCH.format("'E'", 512).replace("$STEPS", "2")
    assert said(text, "a.sh") == [("train_batch_size", 3)]
    assert said(text.replace("t.py", f"t.py {argument}"), "a.sh") == []


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ('init_process_group("gloo")', [("NCCL_SOCKET_IFNAME", 2)]),
        ('init_process_group(backend="gloo")\nmp.spawn(f, nprocs=2)', [("NCCL_SOCKET_IFNAME", 2)]),
        ('init_process_group(backend="cpu:gloo,cuda:nccl")', []),
        ('init_process_group("gloo")\nnew_group(backend="nccl")', []),
        ("init_process_group()", []),
        ("init_process_group(arguments.backend)", []),
    ],
)
def test_a_program_whose_groups_are_all_on_gloo_reads_no_setting_of_nccl(calls, expected):
    assert said(f'import os\nos.environ["NCCL_SOCKET_IFNAME"] = "eth1"\n{calls}\n', "a.py") == expected


def test_a_file_whose_name_holds_the_number_of_the_job_is_found_again():
    text = BATCH.format("'E'", 512).replace("$STEPS", "2").replace("ds.json", "ds_${SLURM_JOB_ID}.json")
    assert said(text, "a.sh") == [("train_batch_size", 3)]


def test_one_branch_may_start_two_jobs_of_the_same_hosts():
    jobs = "  torchrun $COMMON --master-port=29500 t.py\n  torchrun $COMMON --master-port=29501 e.py\n"
    text = f'COMMON="--nnodes=2 --node-rank=$NODE_RANK"\nif [ $NODE_RANK = 0 ]; then\n{jobs}else\n{jobs}fi\n'
    assert said(text, "a.sh") == []


def test_a_leader_with_a_command_of_its_own_is_one_host_more():
    assert said(GROUP.format(3, "leaderTemplate: {spec: {}}\n    workerTemplate:"), "l.yaml") == []


def test_a_host_twice_is_only_mentioned_where_open_mpi_may_read_it():
    found = lint([launch.read(b"a slots=4\na slots=4\n", "hosts")]).findings
    assert [(f.severity, f.message.split()[0].rstrip(":")) for f in found] == [("info", "a")]


def test_sections_of_an_unknown_configuration_are_unread_not_clean():
    assert launch.read(b"[job]\nNCCL_DEBUG=WARN\n", "job.conf").unread


@pytest.mark.parametrize("end", ["", ' "$@"'])
def test_what_deepspeed_does_not_pass_on(end):
    """Whatever the script is given: DeepSpeed has no option that names a variable."""
    text = "export FI_PROVIDER=efa\nexport NCCL_SOCKET_IFNAME=ens5\ndeepspeed --hostfile /h --master_addr n0 t.py"
    assert said(text + end + "\n", "run.sh") == [("FI_PROVIDER", 1)]


@pytest.mark.parametrize(
    ("transports", "devices", "found"),
    [
        ("rc,self,sm", "bond0", ["UCX_TLS=rc,self,sm"]),
        ("rc,self,sm", "mlx5_bond_0:1", []),
        ("tcp", "mlx5_0:1", ["UCX_TLS=tcp"]),
        ("tcp,self", "eth0", []),
        ("rc,tcp", "eth0", []),
        ("^rc", "eth0", []),
        ("all", "eth0", []),
    ],
)
def test_devices_that_no_transport_of_ucx_uses(transports, devices, found):
    text = f"export UCX_TLS={transports}\nexport UCX_NET_DEVICES={devices}\nmpirun -np 2 python t.py\n"
    findings = lint([launch.read(text.encode(), "run.sh")]).findings
    assert [f.message.split()[0] for f in findings if "has no transport" in f.message] == found
