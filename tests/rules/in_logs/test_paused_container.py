"""A container of the job that somebody paused."""

from __future__ import annotations

from tests.rules import crash_texts as texts
from whichrank.rules.host_resources import paused_container

EVENT = "2025-03-02T11:20:{0}+0000 ws1 podman[23344]: container {1} 4be19d02f7ac05d32df5 (image=gan:0.9, name=gan-1)\n"


def judged(tmp_path, events):
    files = {f"rank{rank}.log": texts.TIMED_OUT.format(rank) for rank in (0, 2)}
    return paused_container.judge(texts.case_of(texts.write(tmp_path, {**files, "journal.txt": events})))


def test_the_rank_that_did_not_time_out_is_named(tmp_path):
    (found,) = judged(tmp_path, EVENT.format(13, "pause"))
    assert (found.cause, found.subject.ranks) == ("rank-frozen", (1,))


def test_a_container_that_ran_again_is_no_cause(tmp_path):
    assert judged(tmp_path, EVENT.format(13, "pause") + EVENT.format(14, "unpause")) == []


def test_nor_is_one_of_a_job_that_did_not_stand_still(tmp_path):
    files = {"journal.txt": EVENT.format(13, "pause"), "rank0.log": "step 1 loss 2.0\n"}
    assert paused_container.judge(texts.case_of(texts.write(tmp_path, files))) == []
