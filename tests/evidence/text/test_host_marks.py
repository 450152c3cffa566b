"""Headings and shell prompts that name the host whose answer follows."""

from __future__ import annotations

import pytest

from tests.evidence.readers.test_ib_state import ports
from tests.evidence.readers.test_nvidia_smi import gpus, write
from whichrank.evidence.text.host_marks import host_above, mark_of


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("==== node7: nvidia-smi", "node7"),
        ("--- gpu-a ---", "gpu-a"),
        ("### node7 ###", "node7"),
        ("[root@node1 ~]# ibstat", "node1"),
        ("user@node1:~$ ibstat", "node1"),
        ("node1 # ibstat", "node1"),
        ("node1$ nvidia-smi", "node1"),
        ("birch:~$ cat /etc/hosts", "birch"),
        ("birch:/var/log# tail syslog", "birch"),
        ("    root@node1:~$ ibstat", "node1"),
        ("        x > 1", None),
        ("=== summary ===", None),
        ("node1 # train.py", None),
        ("# Port counters: Lid 4 port 1", None),
        ("== now 2026-11-15T10:00:00.000Z ==", None),
    ],
)
def test_the_host_that_a_line_names(line, host):
    assert host_above(line) == host


def test_ports_below_a_heading_and_gpus_below_a_prompt(tmp_path):
    port = "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n"
    assert [p.host for p in ports(tmp_path, f"=== node7 ===\n{port}=== node8 ===\n{port}")] == ["node7", "node8"]
    query = "nvidia-smi --query-gpu=index,uuid,temperature.gpu --format=csv\n"
    row = "index, uuid, temperature.gpu\n0, GPU-11111111-2222-3333-4444-555555555555, 41\n"
    told = write(tmp_path, "".join(f"[root@{host} ~]# {query}{row}" for host in ("node7", "node8")))
    assert [gpu.host for gpu in gpus(told)] == ["node7", "node8"]


@pytest.mark.parametrize(
    ("line", "host", "sure"),
    [
        ("$ ssh node7 dmesg -T | tail", "node7", True),
        ("ops@login:~$ ssh -o BatchMode=yes root@alpha dmesg", "alpha", True),
        ("$ kubectl logs trainer-2 --tail 50", "trainer-2", True),
        ("$ kubectl -n ml exec -it pod/trainer-2 -- nvidia-smi", "trainer-2", True),
        ("+ srun --overlap -w node7 dmesg", "node7", True),
        ("node7 | CHANGED | rc=0 >>", "node7", True),
        ("[1] 14:02:47 [SUCCESS] node7", "node7", True),
        ("==> logs/node7.log <==", "node7", False),
        ("== dmesg on node7 ==", "node7", False),
        ("-- gx-31 --", "gx-31", False),
        ("# tn-a 10.20.4.11, py-spy dump at 11:48", "tn-a", False),
        ("## host node7 (ranks 0-7)", "node7", False),
        ("== node7 == df -h /data", "node7", False),
        ("[node7]", "node7", False),
        ("**node7**", "node7", False),
        ("node7:", "node7", False),
        ("After the crash, on hgx-b12:", "hgx-b12", False),
        ("=== summary ===", None, True),
        ("### rank 3 (local 3) pid 4011", None, True),
        ("--- rank-3 ---", None, True),
        ("==> rank3.log <==", None, True),
        ("$ nvidia-smi", None, True),
    ],
)
def test_whose_lines_follow(line, host, sure):
    mark = mark_of(line)
    assert mark is not None
    assert (mark.host, mark.sure) == (host, sure)


@pytest.mark.parametrize("line", ["step 10 loss 2.3", "- node7: nothing there", "Traceback (most recent call last):"])
def test_lines_that_head_nothing(line):
    assert mark_of(line) is None


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("=== rank 3 ===", 3),
        ("### Rank 3", 3),
        ("rank 3:", 3),
        ("==> logs/rank_3/stderr.log <==", 3),
        ("$ tail -n 5 logs/rank_3.log", 3),
        ("--- node7 rank 3 ---", 3),
        ("    node7$ py-spy dump --pid 811   # rank 3, still there", 3),
        ("node7$ py-spy dump --pid 811   # rank 3 waits for rank 5", None),
        ("node7$ py-spy dump --pid 811", None),
        ("## node7 (rank 3)", 3),
        ("=== rank 3 waits for rank 5 ===", None),
        ("=== ranks 0-3 ===", None),
        ("=== local_rank 3 ===", None),
        ("=== node_rank 3 ===", None),
    ],
)
def test_the_rank_whose_lines_follow(line, rank):
    mark = mark_of(line)
    assert mark is not None
    assert mark.rank == rank
