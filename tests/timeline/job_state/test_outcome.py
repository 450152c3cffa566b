"""How a run ended, by its own words: a run that finished neither hung nor crashed, whatever it printed on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.records.events.processes import Traceback
from whichrank.timeline.job_state import statements

OOM = (
    "[rank3]: Traceback (most recent call last):\n"
    '[rank3]:   File "/app/train.py", line 12, in <module>\n'
    "[rank3]:     loss = model(batch)\n"
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity\n"
)
STEPS = "".join(f"step {step}/40 loss 1.{step}\n" for step in range(5, 45, 5))


def verdict(tmp_path: Path, text: str):
    (tmp_path / "job.log").write_text(text)
    return diagnose([tmp_path], jobs=1).verdict


@pytest.mark.parametrize(
    "end",
    [
        "training finished\n",
        "INFO - rank 0 - done\n",
        "[launch.sh] torchrun exited with 0\n",
        "{'train_runtime': 81.2, 'train_loss': 1.5, 'epoch': 2.0}\n",
        "`Trainer.fit` stopped: `max_epochs=3` reached.\n",
        "======= 22 passed in 311.42s (0:05:11) =======\n",
        "Job 90412 finished with exit code 0\n",
        "p0 I1103 06:56:11.001230 train.py:240] done.\n",
        "exit codes: p0=0 p1=0 p2=0 p3=0\n",
        "host2 finished, 323 batches in all\n",
        "worker 3: done\n",
        "INFO tagger: rank 2: all 14 shards read, 112 batches, finished\n",
    ],
)
def test_a_run_that_says_so_finished(tmp_path, end):
    told = verdict(tmp_path, OOM + STEPS + end)
    assert (told.category, told.cause) == ("healthy", "healthy"), told.summary


@pytest.mark.parametrize(
    "end",
    [
        "",
        "training did not finish\n",
        "waiting until the job is done\n",
        "exited with 1\n",
        "validation finished\n",
    ],
)
def test_without_such_words_the_error_stands(tmp_path, end):
    assert verdict(tmp_path, STEPS.replace("/40", "/400") + OOM + end).cause == "gpu-out-of-memory"


def test_a_failure_behind_the_words_counts(tmp_path):
    assert verdict(tmp_path, STEPS + "training finished\n" + OOM).cause == "gpu-out-of-memory"


LOST = (
    "2026-11-18 09:42:27,639 ERROR data worker lost, restarting the workers\n"
    "Traceback (most recent call last):\n"
    '  File "/app/train.py", line 55, in resilient\n'
    "    ahead.append(pool.submit(load))\n"
    "RuntimeError: the pool is not usable anymore\n"
)


@pytest.mark.parametrize(("seconds", "cause"), [(range(28, 34), "healthy"), (range(20, 26), "rank-exception")])
def test_the_output_of_another_rank_goes_on_behind_it_by_the_clock(tmp_path, seconds, cause):
    steps = "".join(f"2026-11-18 09:42:{s},100 INFO step {s} loss 1.{s}\n" for s in seconds)
    for rank, text in enumerate((steps, LOST)):
        (tmp_path / f"rank_{rank}").mkdir()
        (tmp_path / f"rank_{rank}" / "stderr.log").write_text(text)
    assert diagnose([tmp_path], jobs=1).verdict.cause == cause


def test_an_exit_code_of_another_run_before_it_says_nothing(tmp_path):
    (tmp_path / "job.log").write_text("step 40/400 loss 1.0\n" + OOM)
    (tmp_path / "table.err").write_text(texts.table({0: -6, 3: 1}, 3))
    assert diagnose([tmp_path], jobs=1).verdict.cause == "gpu-out-of-memory"


SERVED = "".join(f"INFO 02-28 12:{m:02d}:10 Avg generation throughput: {600 + m}.1 tokens/s\n" for m in range(30))


def test_a_server_that_serves_to_the_last_line_is_healthy(tmp_path):
    told = verdict(tmp_path, OOM + SERVED)
    assert (told.category, "throughput" in told.summary) == ("healthy", True)


@pytest.mark.parametrize(
    "end",
    [
        OOM,
        "".join(f"12:{m:02d} waiting for step {m} of rank 3, retrying\n" for m in range(20)),
        texts.TIMED_OUT.format(1),
    ],
)
def test_what_comes_behind_the_work_counts(tmp_path, end):
    assert verdict(tmp_path, SERVED + end).category != "healthy"


def test_a_complaint_beside_a_log_that_just_stops_is_believed(tmp_path):
    (tmp_path / "note.txt").write_text("Our job hangs: after step 29 nothing is printed any more and it is stuck.\n")
    assert verdict(tmp_path, SERVED).category == "hang"


def test_a_server_that_answers_behind_an_error_is_healthy(tmp_path):
    served = '(APIServer pid=1) INFO:     10.4.0.{}:31718 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    refused = (
        "(APIServer pid=1) ERROR 02-22 23:47:31 [serving_chat.py:241] Error in preprocessing prompt inputs\n"
        "(APIServer pid=1) ValueError: This model's maximum context length is 32768 tokens.\n"
        '(APIServer pid=1) INFO:     10.4.0.19:40122 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request\n'
    )
    log = "".join(served.format(n) for n in range(20))
    assert verdict(tmp_path, log + refused + served.format(99)).category == "healthy"
    assert verdict(tmp_path, log + refused).category != "healthy"


SERVER = (
    "INFO 06-02 11:02:10 [__init__.py:243] Automatically detected platform cuda.\n"
    "WARNING 06-02 11:05:40 [scheduler.py:1731] Sequence group cmpl-91c2 is preempted by PreemptionMode.RECOMPUTE\n"
    "INFO:     Application startup complete.\n"
)
LEFT = "INFO:     Shutting down\nINFO:     Application shutdown complete.\n"


def test_a_server_that_was_asked_to_end_is_well(tmp_path):
    assert verdict(tmp_path, SERVER + LEFT).category == "healthy"


def test_a_server_that_lost_a_process_is_not(tmp_path):
    assert verdict(tmp_path, SERVER + OOM.replace("3", "1") + LEFT).category != "healthy"


CAUGHT = (
    "13:16:32 rank 1 INFO: step 15/150 loss 0.46 micro-batches 1\n"
    "13:16:45 rank 1 INFO: step 30/150 loss 0.35 micro-batches 1\n"
    "13:16:57 rank 1 ERROR: step 42: CUDA out of memory\n"
    "13:16:57 rank 1 WARNING: step 42: trying again with 2 micro-batches\n"
)
RAISED = (
    'Traceback (most recent call last):\n  File "fit.py", line 9, in <module>\n    main()\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
)


@pytest.mark.parametrize(
    ("rest", "cause"),
    [
        ("13:17:01 rank 1 INFO: step 45/150 loss 0.48 micro-batches 2\n", "healthy"),
        ("", "gpu-out-of-memory"),
        (RAISED + "13:17:01 rank 1 INFO: step 45/150 loss 0.48 micro-batches 2\n", "gpu-out-of-memory"),
    ],
    ids=["a later step of its own", "none", "a line that waited in a buffer"],
)
def test_a_rank_that_counts_on_has_got_over_it(tmp_path, rest, cause):
    (tmp_path / "rank1.log").write_text(CAUGHT + rest)
    assert diagnose([tmp_path], jobs=1).verdict.cause == cause


BELOW_A_LOGGER = "2026-11-17 17:27:07,203 ERROR rank 2: micro-batch 1024 does not fit, trying 512\n" + RAISED
REPORT = (
    "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-17_17:27:08\n  host      : localhost\n"
    "  rank      : 2 (local_rank: 2)\n  exitcode  : 1 (pid: 566)\n"
)


@pytest.mark.parametrize(
    ("text", "sure"),
    [(BELOW_A_LOGGER, False), (BELOW_A_LOGGER + RAISED.replace("OutOfMemory", "Runtime"), True), (RAISED, True)],
    ids=["a logger wrote it", "something else was raised too", "nobody logged it"],
)
def test_what_a_logger_wrote_may_have_been_caught(tmp_path, text, sure):
    (tmp_path / "job.log").write_text(text)
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.cause, found.confidence > 0.7) == ("gpu-out-of-memory", sure)


def test_a_launcher_that_saw_the_end_is_believed(tmp_path):
    (tmp_path / "job.log").write_text(BELOW_A_LOGGER + REPORT)
    assert diagnose([tmp_path], jobs=1).verdict.confidence > 0.7


def test_losses_that_follow_an_error_are_training_too(tmp_path):
    """Lines that count nothing but have a loss of their own."""
    went_on = "".join(f"[rank2]: shard {n}/14 batch {8 * n} loss 2.{n}\n" for n in range(5, 12))
    raised = OOM.replace("rank3", "rank2")
    case = texts.case_of(texts.write(tmp_path, {"job.log": "[rank2]: shard 1/14 loss 2.3\n" + raised + went_on}))
    (event,) = case.events(Traceback)
    assert statements.survived(case, event)


BY_A_TIMER = """Timeout (0:00:03)!
Thread 0x00007f8f08ece140 (most recent call first):
  File "/app/train.py", line 57 in validate
  File "/app/train.py", line 101 in <module>
"""
AT_THE_BARRIER = """Timeout (0:00:03)!
Thread 0x00007f8f08ece140 (most recent call first):
  File "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", line 5030 in barrier
  File "/app/train.py", line 93 in main
  File "/app/train.py", line 101 in <module>
"""


@pytest.mark.parametrize(("end", "ended_well"), [("training complete, exit 0\n", True), ("", False)])
def test_stacks_that_a_timer_of_the_program_printed(tmp_path, end, ended_well):
    """It says in another file that it is done: the stacks are from before."""
    for rank in range(4):
        folder = tmp_path / "logs" / "none_x" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(AT_THE_BARRIER if rank else BY_A_TIMER)
        (folder / "stdout.log").write_text("" if rank else "step 5/40 loss 1.5\n" + end)
    assert (diagnose([tmp_path], jobs=1).verdict.category == "healthy") == ended_well
