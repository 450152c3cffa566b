"""Headings and shell prompts that name the host whose answer follows."""

from __future__ import annotations

import pytest

from tests.evidence.readers.test_ib_state import ports
from tests.evidence.readers.test_nvidia_smi import gpus, write
from whichrank.evidence.text.host_marks import host_above


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
