"""What gets to ranks by lists that a file itself makes, by files that others read, and by Ray."""

import pytest

from tests.source.test_launch_mistakes import said

SET = "export NCCL_SOCKET_IFNAME=bond0\nexport NCCL_IB_HCA=mlx5_0\nexport NCCL_IB_TC=106\n"
RUN = "torchrun --nnodes=4 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=a:29400 --rdzv-id=7 t.py"
NAMES = "NCCL_SOCKET_IFNAME NCCL_IB_HCA"
EACH = "for n in {}; do {}; done"
PRINTED = EACH.format('"${KEEP[@]}"', 'printf \'export %s=%q; \' "$n" "${!n}"')
ECHOED = EACH.format('"$@"', "echo export $n=${!n}")
WRITTEN = EACH.format(NAMES, "echo export $n=${!n}")
OPTIONS = EACH.format(NAMES, "printf -- '-x %s ' $n")
IN_A_DOCUMENT = f"export NCCL_SOCKET_IFNAME=$NCCL_SOCKET_IFNAME NCCL_IB_HCA=$NCCL_IB_HCA\n{RUN}"
COPIED = f'scp "$F" "$h:/tmp/job.sh"\nssh $h ". /tmp/job.sh; {RUN}" &'
LISTS = [
    f'KEEP=({NAMES})\nf() {{ {PRINTED}; }}\npdsh -w a,b "$(f) {RUN}"\n',
    f'f() {{ {ECHOED}; }}\np=$(f {NAMES})\nclush -w a,b "$p\n{RUN}"\n',
    f'KEEP=({NAMES})\npdsh -w a,b "$(declare -p "${{KEEP[@]}}"); {RUN}"\n',
    f'L=\nfor v in {NAMES}; do L+=" $v=${{!v}}"; done\npdsh -w a,b "env $L {RUN}"\n',
    f'f() {{\ncat <<E\n{IN_A_DOCUMENT}\nE\n}}\nfor h in a b; do ssh $h "$(f)" & done\n',
    f'{{ {WRITTEN}; }} > "$F"\nfor h in a b; do\n{COPIED}\ndone\n',
    f"f() {{ {OPTIONS}; }}\nmpirun -np 16 --hostfile hosts $(f) python train.py\n",
]


@pytest.mark.parametrize("text", LISTS)
def test_names_beside_the_list_are_lost(text):
    assert said(f"#!/bin/bash\n{SET}{text}", "go.sh") == [("NCCL_IB_TC", 4)]


@pytest.mark.parametrize(
    "text",
    [
        f'f() {{ env | grep ^NCCL_ | sed "s/^/export /"; }}\npdsh -w a,b "$(f); {RUN}"\n',
        f'f() {{ for n in ${{!NCCL_@}}; do echo export $n=${{!n}}; done; }}\nR="$(f); {RUN}"\npdsh -w a,b "$R"\n',
        f'X=$(export -p | grep NCCL)\npdsh -w a,b "$X; {RUN}"\n',
        f'env | grep ^NCCL_ > /shared/job.sh\npdsh -w a,b "set -a; . /shared/job.sh; {RUN}"\n',
    ],
)
def test_a_print_of_all_of_them_arrives(text):
    assert said(f"#!/bin/bash\n{SET}{text}", "go.sh") == []


MAKE = 'export NCCL_DEBUG := WARN\n{}multi:\n\tpdsh -w a,b "{} ' + RUN + '"\n'
LOCAL = "local:\n\ttorchrun --standalone --nproc-per-node=8 t.py\n"
OWN_LIST = "NCCL_SOCKET_IFNAME=bond0 NCCL_IB_HCA=mlx5_0"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (MAKE.format(LOCAL, OWN_LIST), []),
        (MAKE.format("", OWN_LIST), [("NCCL_DEBUG", 1)]),
        (MAKE.format(LOCAL, ""), [("NCCL_DEBUG", 1)]),
    ],
)
def test_exports_for_another_recipe(text, found):
    assert said(text, "Makefile") == found


STAGES = (
    "FROM x AS {}\nENV NCCL_IB_DISABLE=1\nFROM x\nCOPY --from={} {} {}\nCOPY . /app\n"
    'ENTRYPOINT ["torchrun", "--standalone", "--nproc-per-node=8", "/app/train.py"]\n'
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (STAGES.format("nccl-tests", "nccl-tests", "/opt/all_reduce_perf", "/opt/"), []),
        (STAGES.format("ci", "ci", "/report.xml", "/reports/"), []),
        (STAGES.format("plugin", "plugin", "/b/libnccl-net.so", "/usr/lib/"), []),
        (STAGES.format("build", "build", "/opt/venv", "/opt/venv"), [("NCCL_IB_DISABLE", 2)]),
        (STAGES.format("tools", "tools", "/src/train.py", "/app/"), [("NCCL_IB_DISABLE", 2)]),
    ],
)
def test_stages_that_files_are_copied_from(text, found):
    assert said(text, "Dockerfile") == found


@pytest.mark.parametrize(
    ("reader", "found"),
    [
        ("docker run --env-file job.env img", [("NCCL_DEBUG_FILE", 4)]),
        ("podman run --env-file=job.env img", [("NCCL_DEBUG_FILE", 4)]),
        ("EnvironmentFile= of trainer.service", [("NCCL_DEBUG_FILE", 4)]),
        ("docker compose --env-file job.env up", []),
        ("apptainer exec --env-file job.env img", []),
        ("sourced by launch.sh, with set -a", []),
    ],
)
def test_who_expands_variables_in_a_file(reader, found):
    text = f"# {reader}\nROOT=/scratch\nNCCL_DEBUG=WARN\nNCCL_DEBUG_FILE=${{ROOT}}/nccl.%h.%p\n"
    assert said(text, "job.env") == found


JOB = """apiVersion: ray.io/v1
kind: RayJob
metadata: {{name: a}}
spec:
  entrypoint: {}
  runtimeEnvYAML: |
    env_vars:
      NCCL_SOCKET_IFNAME: "eth0"
      ANY_NAME: {}
  rayClusterSpec:
    enableInTreeAutoscaling: {}
    headGroupSpec:
      rayStartParams: {{num-gpus: "0"}}
      template: {{spec: {{containers: [{{name: h, image: x}}]}}}}
    workerGroupSpecs:
      - groupName: g
        replicas: 2
        minReplicas: 1
        maxReplicas: 4
        template: {{spec: {{containers: [{{name: w, image: x, resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]}}}}
"""


@pytest.mark.parametrize(
    ("entry", "value", "scales", "found"),
    [
        ("python t.py --num-workers 16 --use-gpu", '"1"', "false", []),
        ("python t.py --num-workers 17 --use-gpu", '"1"', "false", [("--num-workers", 5)]),
        ("python t.py --num-workers 17 --use-gpu", '"1"', "true", []),
        ("python t.py --num-workers 6 --gpus-per-worker 3", '"1"', "false", [("--num-workers", 5)]),
        ("python t.py --num-workers 64", '"1"', "false", []),  # of a data loader, for all that is known
        ("python -m verl a.nnodes=3 a.n_gpus_per_node=8", '"1"', "false", [("a.nnodes", 5)]),
        ("python -m verl a.nnodes=2 a.n_gpus_per_node=8", '"1"', "false", []),
        ("python t.py", "1", "false", [("ANY_NAME", 9)]),
        ("NCCL_IB_TC=106 python t.py", '"1"', "false", [("NCCL_IB_TC", 5)]),
        ("bash -c 'export NCCL_IB_TC=106; python t.py'", '"1"', "false", [("NCCL_IB_TC", 5)]),
        ("NCCL_SOCKET_IFNAME=eth0 python t.py", '"1"', "false", []),
        ("NCCL_IB_TC=106 torchrun --standalone --nproc-per-node=8 t.py", '"1"', "false", []),
        ("python t.py --note NCCL_IB_TC=106", '"1"', "false", []),
    ],
)
def test_jobs_of_ray(entry, value, scales, found):
    assert said(JOB.format(entry, value, scales), "job.yaml") == found


SUBMIT = 'ray job submit --runtime-env-json \'{{"env_vars": {{"NCCL_DEBUG": "WARN", "N": {}}}}}\' -- {} python t.py\n'


@pytest.mark.parametrize(
    ("value", "before", "found"),
    [
        ('"8"', "NCCL_DEBUG=WARN", []),
        ("8", "", [("N", 1)]),
        ('"8"', "NCCL_IB_TC=106", [("NCCL_IB_TC", 1)]),
    ],
)
def test_jobs_that_are_submitted(value, before, found):
    assert said(SUBMIT.format(value, before), "go.sh") == found


CLIENT = """import os
from ray.job_submission import JobSubmissionClient
os.environ["{}"] = "WARN"
JobSubmissionClient("http://h:8265").submit_job(
    entrypoint="{} python t.py",
    runtime_env={{"env_vars": {{"NCCL_DEBUG": "WARN", "NCCL_IB_TC": "106"}}}},
)
"""


@pytest.mark.parametrize(
    ("own", "before", "found"),
    [
        ("NCCL_DEBUG", "NCCL_IB_TC=106", []),
        ("NCCL_TOPO_FILE", "", [("NCCL_TOPO_FILE", 3)]),
        ("NCCL_DEBUG", "NCCL_IB_HCA=mlx5_0", [("NCCL_IB_HCA", 5)]),
    ],
)
def test_jobs_that_a_program_submits(own, before, found):
    assert said(CLIENT.format(own, before), "submit.py") == found


@pytest.mark.parametrize(("value", "wrong"), [("0x8012", 1), ("32786", 1), ("1", 0), ("127", 0)])
def test_places_of_partition_keys(value, wrong):
    text = f"export NCCL_IB_PKEY={value}\ntorchrun --standalone --nproc-per-node=8 t.py\n"
    assert len(said(text, "go.sh")) == wrong


PROGRAM = """import shlex, subprocess
from fabric import Connection

def start(host, rank, hosts):
    run = ["/v/torchrun", f"--nnodes={{len(hosts)}}", f"--node-rank={{rank}}", "--nproc-per-node=8",
           {}, "--master-port=29500", "t.py"]
    {}
"""
BY_SSH = 'subprocess.Popen(["ssh", host, f"cd /x && {shlex.join(run)}"])'


@pytest.mark.parametrize(
    ("address", "call", "found"),
    [
        ('"--master-addr=127.0.0.1"', BY_SSH, [("--master-addr", 6)]),
        ('"--master-addr=localhost"', 'Connection(host).run(" ".join(run))', [("--master-addr", 6)]),
        ('f"--master-addr={hosts[0]}"', BY_SSH, []),
        ('"--master-addr=127.0.0.1"', "subprocess.Popen(run)", []),
    ],
)
def test_the_loopback_address_in_a_loop_over_hosts(address, call, found):
    assert said(PROGRAM.format(address, call), "start.py") == found


VALUES = 'podAnnotations:\n  k8s.v1.cni.cncf.io/networks: a/b\n{}env:\n  NCCL_SOCKET_IFNAME: "{}"\n'
SERVICE = (
    "services:\n  t:\n    image: x\n    shm_size: 16g\n    {}: {}\n    environment:\n      NCCL_SOCKET_IFNAME: {}\n"
    "    command: torchrun --standalone --nproc-per-node=8 t.py\n"
)
DOCKER = (
    "docker run --gpus all --ipc=host {} -e NCCL_SOCKET_IFNAME=ens3 img torchrun --standalone --nproc-per-node=8 t.py\n"
)


@pytest.mark.parametrize(
    ("text", "name", "wrong"),
    [
        (VALUES.format("", "^lo,eth,net"), "values.yaml", 1),
        (VALUES.format("", "^lo,docker"), "values.yaml", 0),
        (VALUES.format("hostNetwork: true\n", "^lo,eth,net"), "values.yaml", 0),
        (SERVICE.format("hostname", "t", "ens3"), "compose.yaml", 1),
        (SERVICE.format("network_mode", "host", "ens3"), "compose.yaml", 0),
        (SERVICE.format("hostname", "t", "eth0"), "compose.yaml", 0),
        (
            SERVICE.format("networks", "[n]", "ens3") + "networks: {n: {external: true, name: host}}\n",
            "compose.yaml",
            0,
        ),
        (SERVICE.format("networks", "[n]", "ens3") + "networks: {n: {driver: bridge}}\n", "compose.yaml", 1),
        (DOCKER.format(""), "go.sh", 1),
        (DOCKER.format("--network host"), "go.sh", 0),
        (DOCKER.format("$OPTIONS"), "go.sh", 0),
    ],
)
def test_interfaces_that_a_container_has(text, name, wrong):
    assert len(said(text, name)) == wrong
