"""Every kind of fault, planted in the formats where it happens, is found on its line."""

import textwrap

import pytest

from whichrank.flows.env.lint import lint
from whichrank.source import launch


def findings(name, text, **kwargs):
    return lint([launch.read(textwrap.dedent(text).encode(), name)], **kwargs).findings


def check(found, code, line, *words, severity=None):
    hits = [f for f in found if f.code == code and any(ref.locator == f"line {line}" for ref in f.evidence)]
    assert hits, [(f.code, f.evidence[0].locator, f.message) for f in found]
    text = " ".join([hits[0].message, *hits[0].fix])
    for word in words:
        assert word in text
    if severity:
        assert hits[0].severity == severity


def script(line):
    return f"#!/bin/bash\nexport OMP_NUM_THREADS=8\n{line}\ntorchrun train.py\n"


@pytest.mark.parametrize(
    ("line", "code", "words", "kwargs"),
    [
        ("export NCLL_DEBUG=INFO", "ENV101", ["NCCL_DEBUG"], {}),
        ("export nccl_debug=INFO", "ENV101", ["NCCL_DEBUG"], {}),
        ("export P2P_LEVEL=NVL", "ENV101", ["NCCL_P2P_LEVEL"], {}),
        ("export TORCH_NCCL_DUMP_ON_TIMOUT=1", "ENV101", ["TORCH_NCCL_DUMP_ON_TIMEOUT"], {}),
        ("export TROCH_NCCL_BLOCKING_WAIT=0", "ENV101", ["TORCH_NCCL_BLOCKING_WAIT"], {}),
        ("export NCCL_MAKE_IT_FAST=1", "ENV101", ["no effect"], {}),
        ("export NCCL_TIMEOUT=1800", "ENV102", ["init_process_group(timeout"], {}),
        ("export TORCH_NCCL_TIMEOUT=1800", "ENV102", ["init_process_group(timeout"], {}),
        ("export NCCL_ASYNC_ERROR_HANDLING=1", "ENV103", ["TORCH_NCCL_ASYNC_ERROR_HANDLING"], {}),
        ("export TORCH_NCCL_TRACE_BUFFER_SIZE=2000", "ENV103", ["TORCH_FR_BUFFER_SIZE"], {"torch": "2.13.0"}),
        ("export NCCL_MAX_NRINGS=4", "ENV103", ["NCCL_MAX_NCHANNELS"], {}),
        ("export NCCL_TREE_THRESHOLD=0", "ENV104", ["2.4.8", "NCCL_ALGO"], {}),
        ("export NCCL_CREATE_THREAD_CONTEXT=1", "ENV104", ["2.30.4"], {"nccl": "2.32.3"}),
        ("export NCCL_RAS_ENABLE=1", "ENV104", ["2.24.3"], {"nccl": "2.21.5"}),
        ("export TORCH_FR_BUFFER_SIZE=2000", "ENV104", ["TORCH_NCCL_TRACE_BUFFER_SIZE"], {"torch": "2.7.1"}),
        ("export NCCL_IB_DISABLE=true", "ENV105", ["number 0"], {}),
        ("export NCCL_P2P_LEVEL=nvl", "ENV105", ["capitals"], {}),
        ("export NCCL_BUFFSIZE=4MB", "ENV105", ["becomes 4"], {}),
        ("export TORCH_FR_BUFFER_SIZE=abc", "ENV106", ["hangs"], {}),
        ("export TORCH_FR_CPP_STACK=on", "ENV106", ["hangs"], {}),
        ("export NCCL_IB_HCA=mlx5_1", "ENV107", ["mlx5_10", "NCCL_IB_HCA==mlx5_1"], {}),
        ("export GLOO_SOCKET_IFNAME=^docker0,lo", "ENV108", ["NCCL's syntax"], {}),
        ("export NCCL_SOCKET_IFNAME='eth0, eth1'", "ENV108", ["space"], {}),
        ("export NCCL_SOCKET_IFNAME=mlx5_0", "ENV108", ["NCCL_IB_HCA"], {}),
        ("export NCCL_DEBUG_FILE=/tmp/nccl-rank%d.log", "ENV109", ["%h.%p"], {}),
        ("export NCCL_DEBUG_FILE=/tmp/nccl.log", "ENV109", ["%h.%p"], {}),
        ("export TORCH_NCCL_TRACE_BUFFER_SIZE=2097152", "ENV110", ["entries, not bytes"], {}),
        ("export TORCH_NCCL_BLOCKING_WAIT=1 TORCH_NCCL_DUMP_ON_TIMEOUT=1", "ENV111", ["watchdog", "dump"], {}),
        ("export NCCL_BLOCKING_WAIT=1", "ENV111", ["watchdog"], {}),
        ("export TORCH_FR_BUFFER_SIZE=0 TORCH_NCCL_DUMP_ON_TIMEOUT=1", "ENV111", ["recorder off"], {}),
        ("export TORCH_NCCL_DUMP_ON_TIMEOUT=1", "ENV111", ["nothing to write"], {"torch": "2.6.0"}),
        ("export NCCL_IB_DISABLE=1 NCCL_NET=IB", "ENV111", ["Keep one"], {}),
        ("export TORCH_FR_BUFFER_SIZE=1 TORCH_NCCL_TRACE_BUFFER_SIZE=2", "ENV111", ["wins"], {}),
        ("export NCCL_MIN_CTAS=32 NCCL_MAX_CTAS=8", "ENV111", ["above"], {}),
        ("export NCCL_DEBUG=INFO", "ENV112", ["production"], {"purpose": "production"}),
        ("export CUDA_LAUNCH_BLOCKING=1", "ENV112", ["production"], {"purpose": "production"}),
        ("export TORCH_DISTRIBUTED_DEBUG=DETAIL", "ENV112", ["production"], {"purpose": "production"}),
        ("export NCCL_SOCKET_IFNAME=eth7", "ENV114", ["ens5"], {"interfaces": ["lo", "ens5"], "hcas": []}),
        ("export GLOO_SOCKET_IFNAME=eth7", "ENV114", ["ens5"], {"interfaces": ["lo", "ens5"], "hcas": []}),
        ("export NCCL_IB_HCA=mlx5_9", "ENV114", ["mlx5_0"], {"interfaces": ["lo"], "hcas": ["mlx5_0"]}),
        ("NCCL_DEBUG=INFO", "ENV117", ["export"], {}),
    ],
)
def test_in_a_shell_script(line, code, words, kwargs):
    check(findings("launch.sh", script(line), **kwargs), code, 3, *words)


@pytest.mark.parametrize("value", ["abc", ""])
def test_what_hangs_a_job_is_an_error(value):
    check(findings("launch.sh", script(f"export TORCH_FR_BUFFER_SIZE={value}")), "ENV106", 3, severity="error")


def test_a_slurm_batch_file():
    found = findings(
        "job.sbatch",
        """\
        #!/bin/bash
        #SBATCH --nodes=4
        #SBATCH --export=ALL,NCCL_TIMEOUT=1800
        srun --export=ALL,NCCL_IB_HCA=mlx5_0,mlx5_3 python train.py
        srun bash -c "
            export NCCL_DEBGU=INFO
            python train.py"
        """,
    )
    check(found, "ENV102", 3)
    check(found, "ENV117", 4, "commas")
    check(found, "ENV101", 6, "NCCL_DEBUG")


def test_a_dockerfile():
    found = findings(
        "Dockerfile",
        """\
        FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
        ENV NCCL_DEBUG=INFO \\
            NCCL_TIMEOUT=1800
        ENV NCCL_P2P_LEVEL nvl
        RUN pip install -e . && export NCCL_IB_DISABLE=1
        COPY conf/nccl.conf /etc/nccl.conf
        RUN echo "NCCL_SOCKET_IFNAME=eth0" >> /etc/nccl.conf
        ENV NCCL_TOPO_FILE=/opt/topo.xml
        """,
    )
    check(found, "ENV102", 3)
    check(found, "ENV105", 4, "capitals")
    check(found, "ENV117", 5, "ENV NCCL_IB_DISABLE=1")
    check(found, "ENV115", 6, "every job", severity="warning")
    check(found, "ENV115", 7)
    check(found, "ENV115", 8)


def test_a_kubernetes_manifest():
    found = findings(
        "job.yaml",
        """\
        apiVersion: kubeflow.org/v1
        kind: PyTorchJob
        spec:
          pytorchReplicaSpecs:
            Master:
              template:
                spec:
                  containers:
                    - name: pytorch
                      env:
                        - name: NCCL_SOCKET_IFNAMES
                          value: eth0
                        - name: NCCL_IB_DISABLE
                          value: "true"
                        - name: NCCL_CROSS_NIC
                          value: 1
                        - {name: NCCL_ALGO, value: Ring}
                      command: [bash, -c, "export NCCL_TIMEOUT=60 && torchrun train.py"]
            Worker:
              template:
                spec:
                  containers:
                    - name: pytorch
                      env:
                        - name: NCCL_ALGO
                          value: Tree
                      args:
                        - |
                          export NCCL_DEBUG_FILE=/tmp/%d.log
                          torchrun train.py
        """,
    )
    check(found, "ENV101", 11, "NCCL_SOCKET_IFNAME")
    check(found, "ENV105", 14, "number 0")
    check(found, "ENV117", 16, "Quote it", severity="error")
    check(found, "ENV102", 18)
    check(found, "ENV113", 25, "'Ring'", "'Tree'")
    check(found, "ENV109", 29)


def test_a_python_program():
    found = findings(
        "train.py",
        """\
        import os
        import torch
        import torch.distributed as dist
        os.environ["NCCL_TIMEOUT"] = "1800"
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "INFO"
        os.environ["NCCL_NTHREADS"] = 256
        dist.init_process_group("nccl")
        os.environ["NCCL_DEBUG"] = "INFO"
        os.environ.update({"TORCH_NCCL_BLOCKING_WAIT": "1"})
        x = torch.ones(1).cuda()
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        """,
    )
    check(found, "ENV102", 4)
    check(found, "ENV116", 5, "torch is imported (line 2)")
    check(found, "ENV117", 6, severity="error")
    check(found, "ENV116", 8, "the process group is made (line 7)", severity="warning")
    check(found, "ENV116", 9)
    check(found, "ENV116", 11, "CUDA is in use (line 10)")


def test_nccl_conf():
    found = findings(
        "nccl.conf",
        """\
        # of the cluster
        export NCCL_DEBUG=INFO
        NCCL_IB_TIMEOUT = 22
        NCCL_SOCKET_IFNAME="eth0"
        NCCL_TIMEOUT=1800
        """,
    )
    check(found, "ENV117", 2, "Write: NCCL_DEBUG=INFO")
    check(found, "ENV117", 3, "Write: NCCL_IB_TIMEOUT=22")
    check(found, "ENV117", 4, "quotes")
    check(found, "ENV102", 5)


def captured(rank, host="n1", **variables):
    lines = [f"RANK={rank}", f"HOSTNAME={host}", "WORLD_SIZE=4", "MASTER_ADDR=n0"]
    text = "\n".join([*lines, *(f"{name}={value}" for name, value in variables.items())])
    return launch.read(text.encode(), f"env.rank{rank}.txt")


def test_ranks_that_differ_are_named():
    files = [captured(r, f"n{r}", NCCL_ALGO="Ring", NCCL_SOCKET_IFNAME=f"eth{r}") for r in (0, 1, 2)]
    found = lint([*files, captured(3, "n3", NCCL_ALGO="Tree")]).findings
    hits = [f for f in found if f.code == "ENV113"]
    assert [f.subject.ranks for f in hits] == [(3,)], "NCCL_SOCKET_IFNAME may differ"
    assert hits[0].subject.hosts == ("n3",)
    assert hits[0].severity == "error"
    assert hits[0].evidence[0].source == "env.rank3.txt"
    assert hits[0].evidence[0].locator == "line 5"


def test_a_rank_that_lacks_a_setting_differs():
    files = [captured(r, NCCL_P2P_DISABLE="1") for r in (0, 1, 2)]
    found = lint([*files, captured(3)]).findings
    hits = [f for f in found if f.code == "ENV113"]
    assert [f.subject.ranks for f in hits] == [(3,)]
    assert "not set" in hits[0].message


def test_without_a_majority_all_are_named():
    found = lint([captured(0, NCCL_ALGO="Ring"), captured(1, NCCL_ALGO="Tree")]).findings
    assert [f.subject.ranks for f in found if f.code == "ENV113"] == [(0, 1)]


def test_many_ranks_in_one_file():
    text = "".join(f"{r}: NCCL_PROTO={'LL' if r == 2 else 'Simple'}\n" for r in range(4))
    found = findings("env.txt", text)
    assert [f.subject.ranks for f in found if f.code == "ENV113"] == [(2,)]
    check(found, "ENV113", 3)


def test_known_devices_decide_about_prefixes():
    hcas = [f"mlx5_{i}" for i in range(4)]
    line = script("export NCCL_IB_HCA=mlx5_1")
    assert not [f for f in findings("a.sh", line, interfaces=["eth0"], hcas=hcas) if f.code == "ENV107"]
    found = findings("a.sh", line, interfaces=["eth0"], hcas=[*hcas, "mlx5_10", "mlx5_11"])
    check(found, "ENV107", 3, "mlx5_10, mlx5_11", severity="warning")


def test_older_names_are_right_for_older_releases():
    line = script("export TORCH_NCCL_TRACE_BUFFER_SIZE=2000")
    assert findings("a.sh", line, torch="2.7.1") == ()


def test_rules_say_when_they_could_not_judge():
    result = lint([launch.read(b"export NCCL_DEBUG=INFO\n", "a.sh")])
    missing = {s.code for s in result.coverage.not_evaluated}
    assert {"ENV112", "ENV113", "ENV114", "ENV118"} == missing
    assert "ENV101" in result.coverage.clear
