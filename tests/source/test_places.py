"""Where a text of a launch file is read, and what it becomes there: mistakes beside the right form of each."""

import pytest

from tests.source.test_launch_mistakes import said

JOB = "torchrun --nnodes=4 --nproc-per-node=8 {} train.py"
LOOP = 'for h in $(cat hosts); do\n  ssh "$h" {} &\ndone\nwait\n'
BY_FUNCTION = (
    'go() {{\n  local host=$1\n  shift\n  ssh "$host" "$@"\n}}\n'
    'for i in "${{!HOSTS[@]}}"; do\n  go "${{HOSTS[$i]}}" "{} "\ndone\n'
)
OWN = "--node-rank=$R --master-addr=$(hostname -i) --master-port=29500"
DRAWN = "--rdzv-backend=c10d --rdzv-endpoint=head:29400 --rdzv-id=$(uuidgen)"


def quoted(options):
    return f"'{JOB.format(options)}'"


def escaped(options):
    text = JOB.format(options).replace("$", "\\$")
    return f'"{text}"'


def here(options):
    return f'"{JOB.format(options)}"'


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (LOOP.format(quoted(OWN)), "--master-addr"),
        (LOOP.format(escaped(OWN)), "--master-addr"),
        (LOOP.format(quoted(DRAWN)), "--rdzv-id"),
        (LOOP.format(escaped(DRAWN)), "--rdzv-id"),
        (LOOP.format(here(DRAWN)), "--rdzv-id"),  # read here, anew in each round
        (BY_FUNCTION.format(escaped(OWN)[1:-1]), "--master-addr"),
        (f"pdsh -w n[01-16] {escaped(DRAWN)}\n", "--rdzv-id"),
        (f"clush -w @gpu bash -s <<'E'\n{JOB.format(DRAWN)}\nE\n", "--rdzv-id"),
        (f"ssh n2 {quoted(OWN.replace('$R', '1'))}\n", "--master-addr"),
        (f'blaunch -z "$HOSTS" bash -c {quoted(OWN)}\n', "--master-addr"),
        (
            f"for p in $(cat pods); do\n  kubectl exec $p -- bash -c {quoted(OWN)}\ndone\n",
            "--master-addr",
        ),
    ],
)
def test_every_host_reads_it(text, name):
    assert name in [found for found, _ in said(f"#!/bin/bash\n{text}", "go.sh")]


@pytest.mark.parametrize(
    "text",
    [
        LOOP.format(here(OWN)),
        "ID=$(uuidgen)\n" + LOOP.format(here(DRAWN.replace("$(uuidgen)", "$ID"))),
        BY_FUNCTION.format(here(OWN)[1:-1]),
        f"pdsh -w n[01-16] {here(DRAWN)}\n",
        f"clush -w @gpu bash -s <<E\n{JOB.format(DRAWN)}\nE\n",
        f"ssh n1 {quoted(OWN.replace('$R', '0'))}\n",
    ],
)
def test_this_host_reads_it_once(text):
    assert said(f"#!/bin/bash\n{text}", "go.sh") == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.service", "[Service]\nEnvironment=MASTER_ADDR=$(getent hosts head | cut -d' ' -f1)\nExecStart=/bin/t\n"),
        ("node.env", "NCCL_DEBUG=WARN\nMASTER_ADDR=$(hostname -i)\n"),
        ("Dockerfile", "FROM a\nENV MASTER_ADDR=$(hostname)\n"),
        ("runtime_env.json", '{"env_vars":\n {"MASTER_ADDR": "`hostname -i`"}}'),
        ("a.py", 'import os\nos.environ["MASTER_ADDR"] = "$(hostname -i)"\n'),
    ],
)
def test_nobody_runs_it(name, text):
    assert said(text, name) == [("MASTER_ADDR", 2)]


def test_a_shell_that_sources_a_file_runs_it():
    assert said("# set -a; . node.env\nMASTER_ADDR=$(hostname -i)\n: <<'E'\nNCCL_IB_DISABLE=true\nE\n", "n.env") == []


STATEFUL = """kind: StatefulSet
apiVersion: apps/v1
spec:
  replicas: {}
  template:
    spec:
      containers:
        - image: a
          command: [bash, -c, "{}"]
          env:
            - name: MASTER_ADDR
              valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}
            - name: NCCL_HOSTID
              value: {}
"""
MANY = JOB.format("--node-rank=$R --master-addr=$MASTER_ADDR --master-port=29500")


@pytest.mark.parametrize(
    ("replicas", "command", "host", "names"),
    [
        ("4", MANY, "rack1", ["MASTER_ADDR", "NCCL_HOSTID"]),
        ("{{ .Values.n }}", MANY, "'{{ .Values.h }}'", ["MASTER_ADDR"]),
        ("1", MANY.replace("=4", "=1"), "rack1", []),
        ("4", "torchrun --nproc-per-node=8 train.py", "rack1", []),
    ],
)
def test_pods_that_take_themselves_for_the_first(replicas, command, host, names):
    found = [name for name, _ in said(STATEFUL.format(replicas, command, host), "job.yaml")]
    assert [name for name in found if name in {"MASTER_ADDR", "NCCL_HOSTID"}] == names


@pytest.mark.parametrize(
    ("comment", "wrong"),
    [
        ("# The nodes have two interfaces: eth0 (management) and ib0 (data).", True),
        ("# data goes over the fast network; use ib0", True),
        ("# keep NCCL off the interfaces eth0 and ib0", False),
        ("# the nodes have three interfaces: eth0, ib0 and bond0", False),
        ("# never use ib0", False),
    ],
)
def test_interfaces_that_comments_name(comment, wrong):
    text = f"#!/bin/bash\n{comment}\nexport NCCL_SOCKET_IFNAME=^eth0,ib0\ntorchrun --nproc-per-node=8 t.py\n"
    assert said(text, "go.sh") == ([("NCCL_SOCKET_IFNAME", 3)] if wrong else [])


PROGRAM = """import os, subprocess
{}
def main(hcas: list[str], off: bool):
    {}
    {}
    subprocess.Popen(["torchrun", "--nproc-per-node=8", "t.py"], env=env)
    {}
"""
COPY, SET = "env = os.environ.copy()", 'os.environ["NCCL_DEBUG"] = "WARN"'


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        (("", COPY, SET, ""), [5]),
        (("", SET, COPY, ""), []),
        ((f"BASE = {COPY[6:]}", SET, "env = dict(BASE)", ""), [4]),
        (("", COPY, "", 'env["NCCL_DEBUG"] = "WARN"'), [7]),
        (("", COPY, 'env["NCCL_DEBUG"] = "WARN"', ""), []),
        (("", COPY, 'env["NCCL_IB_HCA"] = str(hcas)', ""), [5]),
        (("", COPY, 'env["NCCL_IB_HCA"] = f"={hcas}"', ""), [5]),
        (("", COPY, 'env["NCCL_IB_HCA"] = "=" + ",".join(hcas)', ""), []),
        (("", COPY, 'env["NCCL_IB_DISABLE"] = str(off)', ""), [5]),
        (("", COPY, 'env["NCCL_IB_DISABLE"] = str(int(off))', ""), []),
        (("", COPY, 'env["NCCL_IB_HCA"] = ["mlx5_0"]', ""), [5]),
    ],
)
def test_environments_of_programs(parts, lines):
    assert [line for _, line in said(PROGRAM.format(*parts), "go.py")] == lines


def test_a_client_keeps_its_environment():
    text = 'import os, subprocess\nenv = {**os.environ, "NCCL_DEBUG": "WARN"}\n'
    text += 'subprocess.Popen(["ssh", host, "torchrun --nproc-per-node=8 t.py"], env=env)\n'
    assert said(text, "go.py") == [("NCCL_DEBUG", 2)]


def test_numbers_of_hosts_and_processes():
    text = "#!/bin/bash\ntorchrun --nnodes=$GPUS_PER_NODE --nproc-per-node=$NUM_NODES t.py\n"
    assert {name for name, _ in said(text, "go.sh")} == {"--nnodes", "--nproc-per-node"}


def test_prefixes_of_env_from():
    text = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: f}\ndata: {NCCL_SOCKET_IFNAME: eth0}\n---\n"
    text += "kind: Pod\napiVersion: v1\nspec:\n  containers:\n    - image: a\n      envFrom:\n"
    text += "        - prefix: X_\n          configMapRef: {name: f}\n"
    assert ("NCCL_SOCKET_IFNAME", 12) in said(text, "job.yaml")
    assert said(text.replace("prefix: X_", 'prefix: ""'), "job.yaml") == []
