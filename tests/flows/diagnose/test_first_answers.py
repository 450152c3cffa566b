"""What a newcomer meets: little evidence, a broken file of one rank, a small terminal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.report import text

EXAMPLE = Path(__file__).parents[3] / "examples" / "skipped_collective"
BARRIER = (
    ("barrier", "torch/distributed/distributed_c10d.py", 4100),
    ("save_checkpoint", "train.py", 40),
    ("main", "train.py", 80),
)
BACKWARD = (
    ("_engine_run_backward", "torch/autograd/graph.py", 823),
    ("backward", "torch/_tensor.py", 581),
    ("train_step", "train.py", 31),
    ("main", "train.py", 78),
)


def said(*paths: Path) -> str:
    return "".join(text.render(diagnose(paths)))


def stacks(folder: Path, *of_ranks: tuple[tuple[str, str, int], ...]) -> Path:
    for rank, frames in enumerate(of_ranks):
        lines = [f"Process {4000 + rank}: python train.py", "Python v3.11.2 (/usr/bin/python3.11)", ""]
        lines += [f'Thread {4000 + rank} (idle): "MainThread"']
        lines += [f"    {function} ({file}:{line})" for function, file, line in frames]
        (folder / f"rank_{rank}.pyspy.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_one_in_a_barrier_and_two_in_backward_hang_by_their_stacks_alone(tmp_path: Path) -> None:
    verdict = diagnose([stacks(tmp_path, BARRIER, BACKWARD, BACKWARD)]).verdict
    assert verdict.category == "hang"
    assert "train.py:40 in save_checkpoint" in verdict.summary
    assert "train.py:31 in train_step" in verdict.summary
    assert verdict.culprits.ranks == ()
    assert verdict.culprits.candidates == (0,)
    assert verdict.victims == (1, 2)
    assert "perhaps rank 0" in said(tmp_path)


def test_two_against_two_blames_nobody(tmp_path: Path) -> None:
    verdict = diagnose([stacks(tmp_path, BARRIER, BACKWARD, BARRIER, BACKWARD)]).verdict
    assert verdict.category == "hang"
    assert verdict.culprits.ranks == ()
    assert verdict.culprits.candidates == (0, 1, 2, 3)
    assert verdict.victims == ()


def test_ranks_at_one_line_are_no_such_hang(tmp_path: Path) -> None:
    assert diagnose([stacks(tmp_path, BACKWARD, BACKWARD, BACKWARD)]).verdict.cause != "conditional-collective"


def test_a_clear_majority_still_names_the_rank(tmp_path: Path) -> None:
    verdict = diagnose([stacks(tmp_path, *[BACKWARD] * 5, BARRIER)]).verdict
    assert verdict.culprits.ranks == (5,)


def test_an_empty_folder_gets_two_lines(tmp_path: Path) -> None:
    assert len(said(tmp_path).splitlines()) == 2


@pytest.mark.parametrize("kept", [0, 10, 100, 300, 600])
def test_a_dump_that_is_cut_before_its_first_entry_blames_nobody_and_is_in_the_answer(
    tmp_path: Path, kept: int
) -> None:
    folder = tmp_path / "job"
    shutil.copytree(EXAMPLE, folder)
    (folder / "fr_trace_rank_1").write_bytes((EXAMPLE / "fr_trace_rank_1").read_bytes()[:kept])
    verdict = diagnose([folder]).verdict
    assert verdict.culprits.ranks == (2,)
    answer = said(folder).partition("COVERAGE")[0]
    assert "fr_trace_rank_1 could not be read" in answer
    assert "rank 1:" in answer


def test_a_number_of_ranks_that_does_not_fit_names_the_variable(tmp_path: Path) -> None:
    words = "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 2/4 clients joined.\n"
    (tmp_path / "rank_0.log").write_text(words)
    assert "WORLD_SIZE is wrong: it says 4, and 2 joined" in " ".join(said(tmp_path).split())
    crowd = "Waiting in store based barrier to initialize process group for 5 seconds, rank: 1, key: store_based_barrier_key:1 (world_size=4, num_workers_joined=16, timeout=0:01:00)\n"  # noqa: E501
    (tmp_path / "rank_0.log").write_text(crowd)
    assert "WORLD_SIZE" in diagnose([tmp_path]).verdict.summary


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize(
    "verb", [("explain", "COLL116"), ("explain", "Connection closed by remote peer"), ("drill", "list")]
)
def test_long_texts_fit_the_terminal(verb: tuple[str, ...], columns: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "whichrank", *verb], env={**os.environ, "COLUMNS": str(columns)}, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    # Addresses and code can't be broken.
    assert [line for line in done.stdout.splitlines() if len(line) > columns and len(line.split()) > 1] == []


def test_processes_that_nothing_calls_ranks(tmp_path):
    """Three of four wait in one collective, one in another: what differs is said, by pid, and no rank is named."""
    odd = [("barrier", "evaluate", 41), ("broadcast", "stop_early", 77)]
    text = "".join(
        f'Process {pid}: python train.py\nPython v3.12.3 (/usr/bin/python3)\n\nThread {pid} (idle): "MainThread"\n'
        f"    {call} (torch/distributed/distributed_c10d.py:4810)\n    {function} (train.py:{line})\n\n"
        for pid, (call, function, line) in zip((700, 701, 702, 703), (odd[1], odd[0], odd[1], odd[1]), strict=True)
    )
    (tmp_path / "stacks.txt").write_text(text)
    verdict = diagnose([tmp_path]).verdict
    assert (verdict.category, verdict.cause, verdict.culprits.ranks) == ("hang", "conditional-collective", ())
    assert "Process 701 waits at train.py:41" in verdict.summary
    (tmp_path / "stacks.txt").write_text(text.replace("broadcast", "recv"))
    assert diagnose([tmp_path]).verdict.category != "hang"  # who waits for messages waits at a line of its own


PASTED = """\
root@box-a10:~/tune# python finetune.py --precision bf16
Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/4
Initializing distributed: GLOBAL_RANK: 2, MEMBER: 3/4
Initializing distributed: GLOBAL_RANK: 1, MEMBER: 2/4
Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/4
iter 0: loss 1.4413, time: 6122.81ms
Traceback (most recent call last):
  File "/srv/tune/finetune.py", line 178, in train
    loss.backward()
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 564.00 MiB. GPU {gpu} has a total capacity of 22 GiB
"""


@pytest.mark.parametrize(("gpu", "ranks"), [(2, (2,)), (0, ())])
def test_a_gpu_tells_the_rank_where_one_host_has_all_of_them(tmp_path, gpu, ranks):
    """GPU 0 may be the only one that a process sees: it tells nothing."""
    (tmp_path / "tune.log").write_text(PASTED.format(gpu=gpu))
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("gpu-out-of-memory", ranks)
