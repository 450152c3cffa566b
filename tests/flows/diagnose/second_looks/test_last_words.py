"""What ranks said last, where the others all said one thing; and how jobs ended that somebody gave up on."""

# ruff: noqa: E501  (messages stand in one piece, as they are printed)

from __future__ import annotations

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose

WORLD = 6
SIGINT = (
    "W0618 06:01:47.330000 4120 torch/distributed/elastic/agent/server/api.py:719] Received 2 death signal, shutting "
    "down workers\nW0618 06:01:47.331000 4120 torch/distributed/elastic/multiprocessing/api.py:908] Sending process 4180 "
    "closing signal SIGINT\n"
)


def verdict(folder, files):
    return diagnose([texts.write(folder, files)], jobs=1).verdict


def told(*own: str, last: str = "step 441 forward done, enter all_reduce") -> dict[str, str]:
    """All ranks but rank 4 end with one line; rank 4 with its own."""
    steps = "".join(f"13:20:{n:02d} step {n} loss 2.{n}\n" for n in range(10, 20))
    said = dict.fromkeys(range(WORLD), f"13:20:40 {last}") | {4: "\n".join(own)}
    return {f"rank{rank}.log": f"{steps}{said[rank]}\n" for rank in range(WORLD)}


@pytest.mark.parametrize(
    ("own", "cause"),
    [
        ("patience used up, leaving the training loop", "conditional-collective"),
        ("Recompiling function forward in block.py:211", "rank-stuck-in-compile"),
        ("saving checkpoint of step 440 to /mnt/slow", "rank-stuck-in-checkpoint"),
    ],
)
def test_the_rank_that_did_not_come_to_the_last_line_of_the_others(tmp_path, own, cause):
    found = verdict(tmp_path, {**told(own), "launch.log": SIGINT})
    assert (found.category, found.cause, found.culprits.ranks) == ("hang", cause, (4,))


def test_a_rank_that_is_ahead_is_not_behind(tmp_path):
    ahead = told("saving checkpoint of step 441 to /mnt/slow\nstep 460 loss 2.1")
    assert verdict(tmp_path, {**ahead, "launch.log": SIGINT}).cause == "job-ended-from-outside"


def test_a_step_that_is_done_is_no_end_of_the_run(tmp_path):
    found = verdict(tmp_path, told("step 441 forward", last="step=441 fwd done, bwd done, enter all_reduce(grads)"))
    assert "finished" not in found.summary


def test_an_event_that_is_done_is_no_end_of_the_run(tmp_path):
    record = (
        '{{"time": "2025-12-01T04:00:1{0}.113Z", "rank": {0}, "event": "recv_forward.done", "step": 884, "mb": 0}}\n'
    )
    found = verdict(tmp_path, {"schedule.jsonl": "".join(record.format(rank) for rank in range(4))})
    assert "finished" not in found.summary


def test_a_job_that_stood_still_for_hours_before_it_was_ended_hung(tmp_path):
    log = "".join(f"2026-06-17 23:{minute:02d}:00 INFO step {minute} loss 2.{minute}\n" for minute in range(10, 30))
    found = verdict(tmp_path, {"job.log": log + SIGINT})
    assert (found.category, found.cause) == ("hang", "collective-stalled")


def test_the_one_rank_that_said_what_makes_a_nan(tmp_path):
    steps = "".join(f"{rank}: step {step} loss 2.{step}\n" for step in range(5) for rank in range(WORLD))
    raised = "".join(
        f"{rank}: ERROR:guard:rank {rank}: lm loss is nan for 20 iterations in a row, abort\n"
        f'{rank}: Traceback (most recent call last):\n{rank}:   File "/app/guard.py", line 44, in check\n'
        f"{rank}: RuntimeError: loss is nan since iteration 5\n"
        for rank in range(WORLD)
    )
    mask = "3: /app/train.py:151: UserWarning: loss_mask of sample 1372371 is all zero, mean over 0 tokens\n"
    found = verdict(tmp_path, {"slurm-77.out": steps + mask + raised})
    assert (found.cause, found.culprits.ranks) == ("nan-origin", (3,))


def test_who_skipped_a_step_met_the_others_in_the_next_one(tmp_path):
    cut = (
        "vm:{0}:9{0} [0] socket.cc:70 NCCL WARN NET/Socket : peer 127.0.0.1<56848> message truncated : receiving 242688 "
        "bytes instead of 65536. If you believe your socket network is in a healthy state, there may be a mismatch\n"
    )
    files = {
        f"rank{rank}.log": "".join(f"[rank {rank}/4] INFO step {step} loss 2.{step}\n" for step in range(19))
        + ("[rank 1/4] WARNING step 19: batch without a single token, skipped\n" if rank == 1 else "")
        + (cut.format(100 + rank) if rank == 2 else "")
        for rank in range(4)
    }
    found = verdict(tmp_path, files)
    assert (found.cause, found.culprits.ranks) == ("conditional-collective", (1,))


def test_units_of_systemd_are_jobs_of_their_own(tmp_path):
    def unit(name: str, *said: str) -> str:
        return "".join(f"Mar 14 09:2{n}:04 box {name}[41877]: {line}\n" for n, line in enumerate(said))

    started = "".join(f"Mar 14 09:19:04 box systemd[1]: Started {name}.service - {name}.\n" for name in ("vit", "asr"))
    well = unit("vit", *(f"[rank0] step {n}/6 loss 2.{n}" for n in range(1, 7)))
    ended = "Mar 14 09:40:09 box systemd[1]: vit.service: Deactivated successfully.\n"
    failed = unit(
        "asr", "[rank0] world_size=2", "[rank0] step 1 loss 7.4", "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/srv/train.py", line 9, in <module>', "[rank0]: ValueError: no such label",
    )  # fmt: skip
    found = verdict(tmp_path, {"journal.txt": started + well + failed + ended})
    assert (found.category, found.cause) == ("crash", "rank-exception")


def test_a_stall_that_the_job_got_over(tmp_path):
    stall = (
        "[2026-02-03 12:01:33.119: W horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be "
        "reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 "
        "seconds.\nMissing ranks:\n0: [grad_0]\n"
    )
    epochs = "".join(f"Epoch {n}/8 - 403s - loss: {4.5 / n:.4f} - accuracy: 0.{n}\n" for n in range(1, 9))
    assert verdict(tmp_path, {"job.log": stall + epochs}).category == "healthy"


def test_the_watchdog_of_a_rank_that_does_not_end(tmp_path):
    leaves = "".join(
        f"[rank{rank}]:[W205 18:00:3{rank}.953145631 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() "
        "was not called before program exit, which can leak resources.\n"
        for rank in (0, 2, 3)
    )
    stuck = (
        "[rank1]:[E205 18:11:06.375750231 ProcessGroupNCCL.cpp:1870] [PG ID 12 PG GUID 99(EXPERT) Rank 1] "
        "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.\n"
    )
    found = verdict(tmp_path, {"train.log": "Training completed.\n" + leaves + stuck})
    assert (found.category, found.cause) == ("hang", "teardown-hang")
