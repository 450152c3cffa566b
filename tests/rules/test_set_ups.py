"""Communicators that only one side began to make, by torch's errors and by stacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose

STEPS = "".join(f"step {n} loss 0.{n}\n" for n in range(10, 60, 10))
RECEIVES = (
    "    irecv (torch/distributed/distributed_c10d.py:2597)\n    recv (torch/distributed/distributed_c10d.py:2659)\n"
)
SENDS = (
    "    isend (torch/distributed/distributed_c10d.py:2540)\n    send (torch/distributed/distributed_c10d.py:2620)\n"
)
REDUCES = "    all_reduce (torch/distributed/distributed_c10d.py:3068)\n"


def waited(rank: int, key: str, inside: int | None = None, group: str = "") -> str:
    number = rank if inside is None else inside
    path = f"/default_pg/0//{group + '//' if group else ''}cuda//{key}"
    return (
        f"[rank{rank}]: torch.distributed.DistBackendError: [{number}] is setting up NCCL communicator and retrieving "
        f"ncclUniqueId from [0] via c10d key-value store by key '{key}', but store->get('{key}') got error: wait "
        f"timeout after 22000ms, keys: {path}\n"
    )


def judged(folder: Path, log: str, stacks: tuple[str, ...] = (), line: int = 62) -> tuple[str, tuple, tuple]:
    if log:
        (folder / "job.log").write_text(STEPS + log)
    for rank, inner in enumerate(stacks):
        head = f"Process {70 + rank}: python ring.py\nPython v3.12.3 (/usr/bin/python3)\n\n"
        head += f'Thread {70 + rank} (idle): "MainThread"\n'
        (folder / f"stacks_rank{rank}.txt").write_text(
            f"{head}{inner}    move (ring.py:{line})\n    <module> (ring.py:90)\n"
        )
    verdict = diagnose([folder], jobs=1).verdict
    return verdict.cause, verdict.culprits.ranks, verdict.culprits.candidates


RING = "".join(waited(rank, f"{rank - 1}:{rank}") for rank in range(1, 5))


def test_the_waiting_ends_at_the_rank_that_waits_for_nobody_in_the_store(tmp_path):
    assert judged(tmp_path, RING) == ("p2p-unmatched", (), (0,))


def test_it_is_named_where_its_stack_is_in_another_operation(tmp_path):
    assert judged(tmp_path, RING, (REDUCES, *[RECEIVES] * 4)) == ("p2p-unmatched", (0,), ())


@pytest.mark.parametrize("half", [RECEIVES, SENDS], ids=["receive", "send"])
def test_all_in_the_same_half_of_an_exchange(tmp_path, half):
    assert judged(tmp_path, RING, (half,) * 5) == ("p2p-deadlock", (0, 1, 2, 3, 4), ())


def test_stacks_alone_do_not_tell_a_deadlock_from_a_message_that_was_left_out(tmp_path):
    assert judged(tmp_path, "", (RECEIVES,) * 4)[:2] == ("unknown", ())


def test_few_that_made_a_group_more_than_the_others(tmp_path):
    log = "".join(waited(rank, "0", rank, "2") for rank in (2, 3))
    assert judged(tmp_path, log, (REDUCES,) * 6) == ("conditional-collective", (2, 3), ())


def test_without_stacks_a_group_that_was_not_begun_accuses_nobody(tmp_path):
    log = "".join(waited(rank, "0", rank, "2") for rank in (2, 3))
    assert judged(tmp_path, log) == ("conditional-collective", (), ())


def test_the_first_communicator_of_the_job_is_its_start(tmp_path):
    (tmp_path / "job.log").write_text("".join(waited(rank, "0") for rank in (1, 2, 3)))
    assert diagnose([tmp_path], jobs=1).verdict.cause == "missing-rank-at-init"
