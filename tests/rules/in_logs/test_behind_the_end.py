"""Watchdogs that give up behind the end of the training."""

# ruff: noqa: E501  (messages stand in one piece, as they are printed)

from __future__ import annotations

from tests.rules import crash_texts as texts
from whichrank.model.grades import Grade
from whichrank.rules.code_collective.participation import behind_the_end

OVER = "`Trainer.fit` stopped: `max_epochs=3` reached.\n"
STUCK = "[rank1]:[E205 18:11:06.3 ProcessGroupNCCL.cpp:1870] [PG ID 12 PG GUID 99(EXPERT) Rank 1] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.\n"


def judged(tmp_path, text):
    return behind_the_end.judge(texts.case_of(texts.write(tmp_path, {"job.log": text})))


def test_a_timeout_behind_the_end_is_a_hint(tmp_path):
    (found,) = judged(tmp_path, OVER + texts.TIMED_OUT.format(0))
    assert (found.cause, found.grade, found.subject.ranks) == ("teardown-hang", Grade.HINTS, ())


def test_a_watchdog_that_is_stuck_there_says_more(tmp_path):
    (found,) = judged(tmp_path, OVER + STUCK)
    assert (found.grade, found.subject.candidates) == (Grade.SUPPORTS, (1,))


def test_before_the_end_it_is_another_matter(tmp_path):
    assert judged(tmp_path, texts.TIMED_OUT.format(0) + OVER) == []


def test_what_was_raised_before_explains_it(tmp_path):
    raised = texts.traceback("ValueError: no such file")
    assert judged(tmp_path, OVER + raised + texts.TIMED_OUT.format(0)) == []
