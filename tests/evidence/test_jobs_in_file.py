"""A text that holds several jobs is taken apart, with the line numbers kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cost import at_most
from whichrank.evidence.jobs_in_file import split
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.contracts import Item

ERROR = (
    'Traceback (most recent call last):\n  File "/app/train.py", line 12, in <module>\nValueError: shapes do not fit\n'
)


def item(tmp_path: Path, text: str) -> Item:
    path = tmp_path / "all.log"
    path.write_text(text)
    return Item(path, "all.log", path.stat().st_size, path.stat().st_mtime_ns)


def parts(tmp_path: Path, text: str) -> dict[str, list[str]]:
    home = tmp_path / "parts"
    home.mkdir()
    return {part.job: part.path.read_text().split("\n") for part in split(item(tmp_path, text), lambda: home)}


def test_banners_open_a_part(tmp_path):
    text = "##### job 8811 #####\nstep 1\nstep 2\n##### job 8830 #####\nstep 7\n"
    found = parts(tmp_path, text)
    assert set(found) == {"8811", "8830"}
    assert found["8830"][3:5] == ["##### job 8830 #####", "step 7"]
    assert found["8830"][:3] == ["", "", ""]


def test_tags_that_a_line_explains(tmp_path):
    lines = [f"5512_{n % 2} step {n} loss 1.0" for n in range(20)]
    text = "slurm array 5512: two tasks write to one file\n" + "\n".join(lines)
    found = parts(tmp_path, text)
    assert set(found) == {"5512_0", "5512_1"}
    assert [line for line in found["5512_1"] if line.startswith("step")] == [
        f"step {n} loss 1.0" for n in range(1, 20, 2)
    ]


def test_pids_and_steps_are_not_jobs(tmp_path):
    lines = [f"{4000 + n % 4} step {n} loss 1.0" for n in range(40)]
    assert set(parts(tmp_path, "\n".join(lines))) == {""}


def test_attempts_of_one_job_stay_together(tmp_path):
    text = "##### job 8811 attempt 1 #####\nstep 1\n##### job 8811 attempt 2 #####\nstep 7\n"
    assert set(parts(tmp_path, text)) == {""}


def test_each_job_is_judged_and_the_newest_told_first(tmp_path):
    old = "2026-06-01 13:20:50 step 402 loss 5.3\n" + ERROR
    new = (
        "".join(f"2026-06-09 04:4{n}:02 step {n} loss 1.9\n" for n in range(9))
        + "2026-06-09 04:50:00 training finished\n"
    )
    (tmp_path / "ticket.txt").write_text(f"##### job 5120 #####\n{new}\n##### job 5077 of last week #####\n{old}")
    answer = diagnose([tmp_path], jobs=1)
    assert answer.verdict.cause == "healthy"
    assert "Job 5120" in answer.verdict.summary
    assert [v.cause for v in answer.incidents] == ["rank-exception"]


def test_very_many_tags_are_no_jobs_and_cost_little(tmp_path):
    """Each of 20,000 numbers heads four lines, and a line speaks of jobs."""
    lines = [f"{10_000 + n // 4} step" for n in range(80_000)]
    with at_most(2.0):
        assert set(parts(tmp_path, "all jobs\n" + "\n".join(lines))) == {""}


def test_long_texts_are_taken_apart_too(tmp_path):
    filling = "2026-06-01 13:20:50 INFO loaded shard\n" * 4000
    text = f"##### job 8811 #####\n{filling}##### job 8830 #####\n{filling}"
    assert len(text) > 1 << 16
    assert set(parts(tmp_path, text)) == {"8811", "8830"}


def test_tags_of_long_texts(tmp_path):
    lines = [f"{'AB'[n % 2]} step {n} loss 1.0 lr 0.1 grad_norm 2.5" for n in range(4000)]
    found = parts(tmp_path, "tag A is job 4410, tag B is job 4411\n" + "\n".join(lines))
    assert set(found) == {"A", "B"}


@pytest.mark.parametrize(("other", "jobs"), [("train_seg.py", {"A", "B"}), ("--nnodes 2 train_det.py", {""})])
def test_tags_with_which_scripts_of_their_own_are_started(tmp_path, other, jobs):
    lines = ["[A] + torchrun --nproc_per_node=4 train_det.py --cfg a.yml", f"[B] + torchrun --nproc_per_node=4 {other}"]
    lines += [f"[{'AB'[n % 2]}] step {n} loss 1.0" for n in range(20)]
    assert set(parts(tmp_path, "\n".join(lines))) == jobs


SERVICES = "".join(
    f"{name}-1   | 2025-01-09 16:0{n}:11 INFO rank 0 iter {n} loss 0.{n}\n"
    for n in range(1, 6)
    for name in ("asr", "ocr")
)


def test_services_that_each_have_a_first_rank_are_jobs(tmp_path):
    found = parts(tmp_path, SERVICES + "asr-1 exited with code 1\n")
    assert set(found) == {"asr-1", "ocr-1"}
    assert found["asr-1"][0].startswith("2025-01-09")
    assert found["asr-1"][-2] == "asr-1 exited with code 1"
    assert "asr" not in "".join(found["ocr-1"])


def test_services_that_share_ranks_are_one_job(tmp_path):
    one = SERVICES.replace("ocr-1   | 2025-01-09 16:01:11 INFO rank 0", "x")
    shared = "\n".join(line.replace("rank 0", "rank 1") if line.startswith("ocr") else line for line in one.split("\n"))
    assert set(parts(tmp_path, shared)) == {""}


def test_the_job_that_a_note_asks_about(tmp_path):
    raised = "".join(
        f"{{0}}-1   | [rank0]: {line}\n"
        for line in ("Traceback (most recent call last):", '  File "/a/{0}.py", line 9, in f', "{1}Error: {0}")
    )
    (tmp_path / "compose.log").write_text(SERVICES + raised.format("asr", "Type") + raised.format("ocr", "Value"))
    for job, error in (("ocr", "ValueError"), ("asr", "TypeError")):
        (tmp_path / "context.txt").write_text(f"Why did our training ({job}-1) end?\n")
        assert error in diagnose([tmp_path], jobs=1).verdict.summary
