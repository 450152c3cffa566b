from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests import standin
from whichrank.model.evidence import Ref
from whichrank.report import text

HANG = """\
Rank 2 skipped all_reduce 5 of the world in sync_grads (train.py:118); ranks 0,
1, 3 wait.
HANG · conditional-collective · 92 % sure · 4 ranks · 2 hosts · gloo · torch
2.13.0

WHO
  rank 2 (tp=0 dp=1) on node7, GPU 3, pid 760
    waiting at all_gather 4 of group tp
    at /opt/job/train.py:118 in sync_grads
  GPU 3 of node7
  link node7 mlx5_0 – node8 mlx5_1

PROOF
  rank 2 never issued all_reduce 5 of default_pg [COLL101]
    fr_0, entry 15 (rank 0)
      > all_reduce 5 of default_pg, scheduled, never completed
    fr_2, entry 14 (rank 2, node7, 2026-01-01T02:47:00Z)
      > all_gather 4 of tp

THE CYCLE
  rank 2 holds tp 4 and waits for world 5
    /opt/job/train.py:118 in sync_grads
  rank 3 holds world 5 and waits for tp 4

WHAT TO DO
  1. If the job still runs, take the next commands below first: stopping it
     destroys that evidence.
  2. A hang does not end by itself: stop the job, fix the cause, restart from a
     checkpoint.

HOW TO FIX IT
  1. Make the branch agree on all ranks.
  2. Or call the collective always.

WAITING RANKS (NOT THE CAUSE)
  ranks 0-1, 3 (3 of 4)

IT COULD ALSO BE
  5 %  uneven-inputs: rank 2 may have had one batch less

ALSO FOUND
  slow · straggler: Rank 1 is late in every step.
  rank 3 is not in tp 4 [COLL109] (a consequence)

NEXT COMMANDS
  $ py-spy dump --pid 760
    shows the branch that rank 2 took (pauses a process for a moment). Settles:
    uneven-inputs.

COVERAGE
  read as flight_recorder: 3 files (fr_0, fr_1, fr_2)
  read in part as flight_recorder: 1 file (fr_3): cut after 14 entries
  could not be read as flight_recorder: 1 file (evil): names a class
  ignored: 1 file (notes.txt)
  rules that found something: COLL101
  rules that found nothing: COLL102
  not evaluated: SLOW101; missing: timing of the collectives
"""


def told(diagnosis, **look):
    return "".join(text.render(diagnosis, **look))


def test_everything_in_its_order():
    assert told(standin.hang(), verbose=True) == HANG


def test_the_report_is_short_unless_asked():
    report = told(standin.hang())
    assert len(report.splitlines()) < len(HANG.splitlines()) - 10
    for line in (
        "  rank 2 (tp=0 dp=1) on node7, GPU 3, pid 760: waiting at all_gather 4 of group",
        "  waiting, not the cause: ranks 0-1, 3 (3 of 4)",
        "  2. Make the branch agree on all ranks.",
        "  $ py-spy dump --pid 760",
        "  read 4 files; 1 ignored; 1 could not be read; 1 rule not evaluated, missing",
        "  not read: evil: names a class",
    ):
        assert line + "\n" in report
    assert "(a consequence)" not in report


def test_the_sentence_at_the_top_is_not_said_twice():
    diagnosis = standin.hang()
    own = standin.finding(message=diagnosis.verdict.summary)
    for verbose in (False, True):
        report = " ".join(told(replace(diagnosis, findings=(own,)), verbose=verbose).split())
        assert report.count(diagnosis.verdict.summary) == 1
    assert "The evidence for it [COLL101]" in report


@pytest.mark.parametrize("make", [standin.hang, standin.large, standin.healthy, standin.unknown])
@pytest.mark.parametrize("width", [40, 80, 110])
def test_lines_keep_to_the_width(make, width):
    lines = told(make(), width=width).splitlines()
    # A command or a path is never broken: it must stay good for copying.
    long = [line for line in lines if len(line) > width and len(line.split()) > 1]
    assert not [line for line in long if not line.lstrip().startswith("$")]


def test_a_world_of_16384_ranks_fits_on_two_screens():
    report = told(standin.large())
    assert len(report.splitlines()) < 80
    assert "5,458 more" in " ".join(report.split())


def test_healthy_says_what_it_is_said_of_and_accuses_nobody():
    report = told(standin.healthy(), verbose=True)
    assert report.startswith("Nothing wrong was found in 4 dumps.\nHEALTHY · 4 ranks")
    assert "read as flight_recorder: 4 files" in report
    assert not {"WHO", "PROOF", "WHAT TO DO", "HOW TO FIX IT"} & set(report.splitlines())


def test_unknown_names_the_next_step_and_no_certainty():
    report = told(standin.unknown())
    assert "Don't blame a rank" in report
    assert "$ py-spy dump --pid PID" in report
    assert "% sure" not in report


def test_quotes_cannot_drive_the_terminal():
    hostile = Ref("fr_\x1b]0;owned\x07", "entry 1", "\x1b[2Jcleared\nsecond line " + "x" * 10_000)
    diagnosis = replace(standin.hang(), findings=(standin.finding(evidence=(hostile,)),))
    report = told(diagnosis)
    assert "\x1b" not in report
    assert "\x07" not in report
    assert "second line" in report
    assert len(report) < 4000
