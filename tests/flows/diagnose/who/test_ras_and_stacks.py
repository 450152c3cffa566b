"""What RAS and stacks tell together, and what watchdogs tell of stacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.verdict import Verdict

SUMMARY = """NCCL version 2.28.9 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.000s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
"""
EQUAL = "    1         1         1         4         4         4   RUNNING      OK\n"
DIFFER = "    0         {0}         1         4         4         4   RUNNING  MISMATCH\n"
PAIRS = "    0         3         1         2         2         4   RUNNING      OK\n"
ERRORS = "\nErrors\n======\n\nWarnings\n========\n\n"
ODD = """#0-0 (c04165f74c055d14) MISMATCH
  Communicator ranks have different AllGather operation counts
  3 ranks have launched up to operation 1
  Rank 1 has launched up to operation {0} -- GPU 0 managed by process 41 on node 192.0.2.2
"""
HALVES = """#0-{0} (c04165f74c055d1{0}) MISMATCH
  Communicator ranks have different AllReduce operation counts
  2 ranks have launched up to operation 54
  2 ranks have launched up to operation 53

"""
AT_ITEM = 'Thread 11 (active): "MainThread"\n    train (fit.py:106)\n    <module> (fit.py:138)\n'
IN_EVALUATION = (
    'Thread 11 (active): "MainThread"\n    recall (fit.py:67)\n    train (fit.py:100)\n    <module> (fit.py:138)\n'
)
SYNCHRONIZES = (
    'Thread 11 (active): "MainThread"\n    synchronize (torch/cuda/__init__.py:1162)\n    run (fit.py:{0})\n'
    "    <module> (fit.py:138)\n"
)


def verdict(folder: Path, stacks: list[str], ras: str = "", log: str = "") -> Verdict:
    for rank, text in enumerate(stacks):
        head = f"Process {40 + rank}: python fit.py\nPython v3.12.3 (/usr/bin/python3.12)\n\n"
        (folder / f"stacks_rank{rank}.txt").write_text(head + text)
    if ras:
        (folder / "ras.txt").write_text(ras)
    if log:
        (folder / "job.log").write_text(log)
    return diagnose([folder], jobs=1).verdict


@pytest.mark.parametrize("count", [0, 2])
def test_all_at_one_line_and_one_communicator_differs(tmp_path: Path, count: int) -> None:
    ras = SUMMARY + DIFFER.format(1) + EQUAL + ERRORS + ODD.format(count)
    found = verdict(tmp_path, [AT_ITEM] * 4, ras)
    assert (found.category, found.cause, found.culprits.ranks) == ("hang", "conditional-collective", (1,))
    assert ("left out" in found.summary) == (count < 1)


def test_a_rank_that_is_ahead_in_the_only_communicator_may_be_a_step_further(tmp_path: Path) -> None:
    assert verdict(tmp_path, [AT_ITEM] * 4, SUMMARY + DIFFER.format(1) + ERRORS + ODD.format(2)).culprits.ranks == ()


def test_ranks_at_different_lines_may_differ_for_a_moment(tmp_path: Path) -> None:
    ras = SUMMARY + DIFFER.format(1) + EQUAL + ERRORS + ODD.format(2)
    elsewhere = AT_ITEM.replace("106", "120")
    assert verdict(tmp_path, [AT_ITEM, elsewhere, elsewhere, AT_ITEM], ras).culprits.ranks == ()


def test_halves_that_used_two_communicators_in_different_orders(tmp_path: Path) -> None:
    ras = SUMMARY + DIFFER.format(2) + EQUAL + ERRORS + HALVES.format(0) + HALVES.format(1)
    found = verdict(tmp_path, [AT_ITEM] * 4, ras)
    assert (found.cause, found.culprits.ranks) == ("process-group-order", (0, 1, 2, 3))


def test_a_job_that_only_sends_messages_blames_nobody_for_its_line(tmp_path: Path) -> None:
    stacks = [SYNCHRONIZES.format(85)] * 3 + [SYNCHRONIZES.format(67)]
    found = verdict(tmp_path, stacks, SUMMARY + PAIRS + ERRORS)
    assert (found.cause, found.culprits.ranks, found.culprits.candidates) == ("p2p-unmatched", (), (0, 1, 2, 3))


def test_the_same_stacks_of_a_job_with_collectives(tmp_path: Path) -> None:
    stacks = [SYNCHRONIZES.format(85)] * 3 + [SYNCHRONIZES.format(67)]
    found = verdict(tmp_path, stacks, SUMMARY + EQUAL + ERRORS)
    assert (found.cause, found.culprits.ranks) == ("conditional-collective", (3,))


def test_sizes_that_do_not_fit_where_ranks_wait_in_different_calls(tmp_path: Path) -> None:
    truncated = (
        "node1:42:99 [0] transport/net_socket.cc:512 NCCL WARN NET/Socket : peer 192.0.2.2<55628> message truncated : "
        "receiving 232448 bytes instead of 65536. If you believe your socket network is in a healthy state\n"
    )
    log = (
        "".join(f"[rank{rank}] hour 3 step {step} loss 4.4\n" for step in (60, 66, 72) for rank in range(4)) + truncated
    )
    apart = [SYNCHRONIZES.format(67), SYNCHRONIZES.format(91), SYNCHRONIZES.format(67), SYNCHRONIZES.format(67)]
    found = verdict(tmp_path, apart, log=log)
    assert (found.category, found.cause, found.culprits.ranks) == ("hang", "conditional-collective", (1,))


def timed_out(rank: int, work: int, op: str, numel: int) -> str:
    return (
        f"[rank{rank}]:[E1118 17:34:06.060697095 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={work}, OpType={op}, NumelIn={numel}, NumelOut={numel}, "
        "Timeout(ms)=25000) ran for 25068 milliseconds before timing out.\n"
    )


def test_whose_batch_of_messages_timed_out_is_not_stuck_in_its_own_code(tmp_path: Path) -> None:
    log = timed_out(0, 27, "COALESCED", 0) + "".join(timed_out(rank, 28, "BROADCAST", 483) for rank in (1, 2, 3))
    found = verdict(tmp_path, [IN_EVALUATION, *[SYNCHRONIZES.format(156)] * 3], log=log)
    assert (found.cause, found.culprits.ranks, found.culprits.candidates) == ("p2p-unmatched", (), (1, 2, 3))


def test_several_that_wait_for_messages_may_wait_for_each_other(tmp_path: Path) -> None:
    log = "".join(timed_out(rank, 11, "RECV", 64) for rank in (1, 2)) + "".join(
        timed_out(rank, 28, "BROADCAST", 483) for rank in (0, 3)
    )
    assert verdict(tmp_path, [], log=log).culprits.candidates == (0, 1, 2, 3)


def test_lines_of_ranks_that_all_wait_for_messages_blame_nobody(tmp_path: Path) -> None:
    stacks = [SYNCHRONIZES.format(85)] * 3 + [SYNCHRONIZES.format(67)]
    log = "".join(timed_out(rank, 400 + rank, "RECV", 64) for rank in range(4))
    assert verdict(tmp_path, stacks, log=log).culprits.ranks == ()


def test_who_has_left_a_loop_may_have_run_out_of_data(tmp_path: Path) -> None:
    found = verdict(tmp_path, [*[SYNCHRONIZES.format(81)] * 3, SYNCHRONIZES.format(86)])
    assert (found.cause, found.culprits.ranks) == ("conditional-collective", (3,))
    assert "uneven-inputs" in [other.cause for other in found.alternatives]


TWO = """#0-0 (0d94f4eaa55880fb) MISMATCH
  Communicator ranks have different {0} operation counts
  Rank {1} has launched up to operation 161 -- GPU 0 managed by process {2} on node 192.0.2.2
  Rank {3} has launched up to operation 159 -- GPU 0 managed by process {4} on node 192.0.2.2

"""


def test_who_is_ahead_in_a_communicator_is_not_held_up_by_its_own_code(tmp_path: Path) -> None:
    ras = SUMMARY.replace("4          4", "2          2") + ERRORS
    ras += TWO.format("AllReduce", 1, 41, 0, 40) + TWO.format("AllGather", 0, 40, 1, 41)
    found = verdict(tmp_path, [IN_EVALUATION, AT_ITEM], ras, timed_out(1, 165, "ALLREDUCE", 64))
    assert 0 not in found.culprits.ranks


def test_a_lock_of_the_interpreter_keeps_a_rank_from_its_collective(tmp_path: Path) -> None:
    said = (
        "[rank2]:[E1118 17:34:07.060697095 ProcessGroupNCCL.cpp:1850] [PG ID 0 PG GUID 0(default_pg) Rank 2] Could not "
        "acquire GIL within 300 ms on exit, possible GIL induced hang\n"
        "[rank2]:[E1118 17:34:06.764755912 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 2] Received "
        "a dump signal due to a collective timeout from  rank 3 and we will try our best to dump the debug info. Last "
        "enqueued NCCL work: 27, last completed NCCL work: 27.This is most likely caused by incorrect usages\n"
    )
    log = said + "".join(timed_out(rank, 28, "ALLREDUCE", 483) for rank in (0, 1, 3))
    found = verdict(tmp_path, [], log=log)
    assert (found.cause, found.culprits.ranks) == ("rank-stuck-in-user-code", (2,))


LOCKED = 'Thread {0} (idle): "{1}"\n    EventLog.flush (fit.py:36)\n    {2}\n'
ROTATES = LOCKED.format(
    11, "MainThread", "EventLog.add (fit.py:33)\n    Molecules.batches (fit.py:61)\n    <module> (fit.py:138)"
)


@pytest.mark.parametrize(
    ("ticker", "cause"),
    [
        (LOCKED.format(12, "ticker", "ticker (fit.py:84)"), "rank-stuck-in-user-code"),
        ("", "rank-stuck-in-data-loading"),
    ],
)
def test_a_line_at_which_two_threads_of_a_process_sleep_is_a_lock(tmp_path: Path, ticker: str, cause: str) -> None:
    found = verdict(tmp_path, [SYNCHRONIZES.format(111), ROTATES + ticker, *[SYNCHRONIZES.format(111)] * 2])
    assert (found.cause, found.culprits.ranks) == (cause, (1,))


def test_who_runs_a_wrapped_model_has_a_group(tmp_path: Path) -> None:
    begins = (
        'Thread 11 (active): "MainThread"\n    _verify_param_shape_across_processes (torch/distributed/utils.py:286)\n'
        "    DistributedDataParallel.__init__ (torch/nn/parallel/distributed.py:881)\n    main (fit.py:99)\n"
    )
    runs = (
        'Thread 11 (active): "MainThread"\n    Net.forward (fit.py:74)\n'
        "    DistributedDataParallel.forward (torch/nn/parallel/distributed.py:1699)\n    main (fit.py:105)\n"
    )
    assert verdict(tmp_path, [begins, begins, begins, runs]).cause != "missing-rank-at-init"
