"""Mistakes that follow from how a format or a trainer reads its file, each beside the right form."""

import pytest

from whichrank.flows.env.lint import lint
from whichrank.source import launch, memory


def lines(text, name):
    found = lint([launch.read(text.encode(), name)]).findings
    return [f.subject.code[0].line for f in found if f.severity != "info"]


POD = """apiVersion: batch/v1
kind: Job
spec:
  completions: 2
  template:
    spec:
      volumes: [{{name: s, emptyDir: {{medium: Memory}}}}]
      containers:
        - image: a
          volumeMounts: [{{name: s, mountPath: /dev/shm}}]
          command: [torchrun, --standalone, --nproc-per-node=4, t.py]
          env:
            - {{name: SVC, value: b}}
            - {{name: NCCL_SOCKET_IFNAME, value: "{}"}}
            - {{name: LATER, value: b}}
"""
INDEXED = """apiVersion: batch/v1
kind: Job
spec:
  {}
  template:
    spec:
      containers:
        - image: a
          command: [sh, -c, "torchrun --nnodes=2 --node-rank=$JOB_COMPLETION_INDEX --master-addr=a t.py"]
"""
LOADERS = """apiVersion: v1
kind: Pod
spec:
  hostIPC: {}
  containers:
    - image: a
      command: [torchrun, --standalone, --nproc-per-node=4, t.py, --num-workers=4]
"""
STOPPING = """apiVersion: v1
kind: Pod
spec:
  terminationGracePeriodSeconds: {}
  containers:
    - image: a
      command: [torchrun, --standalone, t.py]
      env: [{{name: TORCH_ELASTIC_SHUTDOWN_TIMEOUT, value: "60"}}]
"""
HELM = """apiVersion: v1
kind: Pod
spec:
  containers:
    - image: {{{{ .Values.image }}}}
      env:
        - name: NCCL_CROSS_NIC
          value: {{{{ .Values.nic | default 0{} }}}}
"""
TWO = """services:
  a:
    image: i
    ipc: host
    network_mode: host
    command: torchrun --nproc-per-node=4 a.py
  b:
    image: i
    {}
    network_mode: {}
    command: torchrun --nproc-per-node=4 b.py
"""
PORTS = "services:\n  a: {{image: i, ports: ['80:80']}}\n  b: {{image: i, ports: ['{}:80']}}\n"
OTHERS = "services:\n  a:\n    image: i\n    environment:\n      A: b\n      B: ${}\n"
UNIT = (
    "[Service]\n{}\nEnvironment=TORCH_ELASTIC_SHUTDOWN_TIMEOUT=60\nExecStart=/usr/bin/torchrun --standalone t.py {}\n"
)
BATCH = '{{"train_batch_size": {}, "train_micro_batch_size_per_gpu": 4,\n"zero_optimization": {{"stage": {}}}}}'
OFFLOAD = '{{"zero_optimization": {{"stage": {},\n"offload_param": {{"device": "cpu"}}, "{}": true}}}}'
HALF = '{{"train_batch_size": 8, "fp16": {{"enabled": true}},\n"bf16": {{"enabled": {}}}}}'
ACCELERATE = (
    "# two nodes with {} H100 each\ndistributed_type: {}\ndeepspeed_config: {{zero_stage: 2}}\nnum_machines: 2\n"
    "num_processes: 8\nmachine_rank: {}\n"
)
BACKGROUND = "torchrun --nproc-per-node=2 a.py &\ntorchrun {} --nproc-per-node=2 b.py &\nwait\n"
BATCH_JOB = "#SBATCH -N 2\n{}torchrun --nnodes=2 --nproc-per-node=8 --master-addr=$H --node-rank=$R t.py\n"
MAKE = "GPUS := {}\ntrain:\n\tfor i in 0 1; do torchrun --nproc-per-node=$(GPUS) --master-port=2950{} t.py; done\n"
DSTACK = (
    "type: task\nnodes: 1\ncommands:\n  - torchrun --standalone --nproc-per-node=8 t.py\nresources:\n  gpu: H100:{}\n"
)
SPAWN = "import torch.multiprocessing as mp\ndef run(rank, world_size): ...\nmp.spawn(run, args=({},), nprocs=4)\n"
MPI = "{}MASTER_ADDR=a\nsrun python t.py\n"


@pytest.mark.parametrize(
    ("name", "text", "right", "wrong", "line"),
    [
        ("p.yaml", POD, ["$(SVC)"], ["$(LATER)"], 14),
        ("p.yaml", POD, ["$$(hostname -i)"], ["$(hostname -i)"], 14),
        ("p.yaml", POD, ["eth0"], ["$HOSTNAME"], 14),
        ("p.yaml", POD, ["eth0"], ["${SVC}"], 14),
        ("j.yaml", INDEXED, ["completionMode: Indexed"], ["backoffLimit: 0"], 9),
        ("l.yaml", LOADERS, ["true"], ["false"], 6),
        ("s.yaml", STOPPING, ["90"], ["30"], 4),
        ("h.yaml", HELM, [" | quote"], [""], 8),
        ("c.yml", TWO, ["ipc: host", "bridge"], ["ipc: host", "host"], 11),
        ("c.yml", TWO, ["shm_size: 8g", "bridge"], ["restart: 'no'", "bridge"], 7),
        ("c.yml", PORTS, ["81"], ["80"], 3),
        ("c.yml", OTHERS, ["C"], ["A"], 6),
        ("u.service", UNIT, ["TimeoutStopSec=1min 30s", ""], ["TimeoutStopSec=30", ""], 2),
        ("u.service", UNIT, ["Type=exec", "2>&1x"], ["Type=exec", "| tee log"], 4),
        ("u.service", UNIT, ["PrivateDevices=no", ""], ["PrivateDevices=yes", ""], 2),
        ("d.json", BATCH, ["32", "3"], ["30", "3"], 1),
        ("d.json", BATCH, ["32", "3"], ["32", "4"], 2),
        ("d.json", OFFLOAD, ["3", "overlap_comm"], ["2", "overlap_comm"], 2),
        ("d.json", OFFLOAD, ["3", "overlap_comm"], ["3", "overlap_com"], 2),
        ("d.json", HALF, ['"auto"'], ["true"], 2),
        ("a.yaml", ACCELERATE, ["four", "DEEPSPEED", "1"], ["eight", "DEEPSPEED", "1"], 5),
        ("a.yaml", ACCELERATE, ["four", "DEEPSPEED", "1"], ["four", "DEEPSPEED", "2"], 6),
        ("a.yaml", ACCELERATE, ["4", "DEEPSPEED", "1"], ["4", "MULTI_GPU", "1"], 2),
        ("b.sh", BACKGROUND, ["--standalone"], [""], 2),
        ("b.sbatch", BATCH_JOB, ["srun "], [""], 2),
        ("m.mk", MAKE, ["$(shell nvidia-smi -L | wc -l)", "$$i"], ["$(nvidia-smi -L | wc -l)", "$$i"], 1),
        ("m.mk", MAKE, ["8", "$$i"], ["8", "$i"], 3),
        ("d.yml", DSTACK, ["8"], ["4"], 4),
        ("s.py", SPAWN, ["4"], ["8"], 3),
        ("m.sh", MPI, ["export "], [""], 1),
        ("D.Dockerfile", 'FROM a\nCMD ["torchrun", "--nproc-per-node={}", "t.py"]\n', ["8"], ["$GPUS"], 2),
    ],
)
def test_the_mistake_and_its_right_form(name, text, right, wrong, line):
    assert lines(text.format(*right), name) == []
    assert lines(text.format(*wrong), name) == [line]


def test_a_refused_configuration_that_a_script_writes():
    config = '{"train_batch_size": 8,\n"zero_optimization": {"stage": 7}}'
    assert lines(f"cat > d.json <<E\n{config}\nE\ndeepspeed t.py --deepspeed d.json\n", "d.sh") == [3]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20", 20), ("1min 30s", 90), ("1m30s", 90), ("2h", 7200), ("infinity", None), ("", None), ("5 parsecs", None)],
)
def test_a_span_of_time(text, seconds):
    assert memory.seconds(text) == seconds
