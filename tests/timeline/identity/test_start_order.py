"""Ranks of processes in a list, by the order in which torchrun starts them, and by NCCL's report."""

# ruff: noqa: E501  (messages stand in one piece, as they are printed)

from __future__ import annotations

import pytest

from whichrank.flows.diagnose.pipeline import diagnose

HEAD = "    PID    PPID STAT COMMAND\n"
LAUNCHER = "   1979     594 Ssl  /opt/venv/bin/python /opt/venv/bin/torchrun {options} vad.py\n"
REPORT = """NCCL version 2.28.9 compiled with CUDA 13.0

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.000s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         3         4         3   RUNNING  INCOMPLETE

Errors
======

#0-0 (1ad0f7ec6d46c248) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 3 -- GPU 0 managed by process 2026 on node 192.0.2.2

Warnings
========
"""


def listed(options: str, stopped: int = 2, workers: int = 4) -> str:
    rows = [
        f"   {2021 + n}    1979 {'Tsl' if n == stopped else 'Rsl'}  /opt/venv/bin/python -u vad.py\n"
        for n in range(workers)
    ]
    return HEAD + LAUNCHER.format(options=options) + "".join(reversed(rows))


@pytest.mark.parametrize(
    ("options", "workers", "ranks"),
    [
        ("--nproc_per_node=4", 4, (2,)),
        ("--nproc-per-node 4 --nnodes=1", 4, (2,)),
        ("--nproc_per_node=4 --nnodes=2", 4, ()),
        ("--nproc_per_node=5", 4, ()),
    ],
    ids=["all of them", "spelled otherwise", "of several nodes", "one is missing"],
)
def test_workers_of_one_launcher(tmp_path, options, workers, ranks):
    (tmp_path / "ps.txt").write_text(listed(options, workers=workers))
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("rank-frozen", ranks)


def test_what_nccl_reports_of_a_process_tells_its_rank(tmp_path):
    rows = "".join(f"   {pid} {'Tsl' if pid == 2026 else 'Rsl'} python -u vad.py\n" for pid in (2021, 2022, 2025, 2026))
    (tmp_path / "ps.txt").write_text("    PID STAT COMMAND\n" + rows)
    (tmp_path / "ras.txt").write_text(REPORT)
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("rank-frozen", (3,))


MEMORY = "ox-1: [2026-03-02 18:39:40,118] [INFO] [utils.py:789:see_memory_usage] CPU Virtual Memory:  used = 81.02 GB, percent = 21.6%\n"
KILLED = "{}: [2026-03-02 18:40:0{},771] [INFO] [launch.py:319:sigkill_handler] Killing subprocess {}\n"
ENDED = "{}: [2026-03-02 18:40:09,020] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python3', '-u', 'sft.py', '--local_rank=3'] exits with return code = -9\n"
KERNEL = "[5120.613044] Out of memory: Killed process {} (python3) total-vm:214553012kB, anon-rss:132118840kB, file-rss:81204kB, shmem-rss:9820kB, UID:1002 pgtables:262144kB oom_score_adj:0\n"


@pytest.mark.parametrize(
    ("pids", "ranks"),
    [((811, 812, 813, 814), (5,)), ((911, 812, 813, 814), (5,)), ((812, 813, 814), ())],
    ids=["all of them", "in whatever order of pids", "one is missing"],
)
def test_the_launcher_ends_its_processes_in_the_order_of_their_local_ranks(tmp_path, pids, ranks):
    ended = "".join(KILLED.format("ox-2", n, pid) for n, pid in enumerate(pids))
    (tmp_path / "notes.md").write_text("hostfile: ox-1 slots=4, ox-2 slots=4; rank 0 is on ox-1.\n")
    (tmp_path / "run.log").write_text(MEMORY + ended + ENDED.format("ox-2") + MEMORY)
    (tmp_path / "ox-2_dmesg.txt").write_text(KERNEL.format(812))
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.hosts) == ("host-out-of-memory", ("ox-2",))
    assert verdict.culprits.ranks == ranks
