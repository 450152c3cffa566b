"""Records of Slurm: how one job ended, whatever its output looks like."""

from __future__ import annotations

import pytest

from whichrank.evidence.readers.slurm_records import read, sniff
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.contracts import Item
from whichrank.records.events.launchers import HostOutOfMemory, JobEnded
from whichrank.records.events.run_state import RunFinished

OUTPUT = """\
[2026-03-02 04:10:11] iteration 4990/5000 | lm loss: 1.9 |
[2026-03-02 04:10:42] iteration 5000/5000 | lm loss: 1.9 |
saved checkpoint of iteration 5000
slurmstepd: error: *** STEP 88123.1 ON gpu17 CANCELLED AT 2026-03-02T04:12:20 ***
srun: error: gpu17: task 0: Terminated
srun: error: gpu18: task 1: Killed
"""
TABLE = """\
JobID           JobName      State ExitCode        NodeList
------------ ---------- ---------- -------- ---------------
88123             train  {whole:>9} {code:>8}     gpu[17-18]
88123.batch       batch  {whole:>9} {code:>8}           gpu17
88123.extern     extern  COMPLETED      0:0     gpu[17-18]
88123.0           train  {step:>9} {code:>8}           {node}
88123.1         sampler CANCELLED+     0:15     gpu[17-18]
"""
GOOD = TABLE.format(whole="COMPLETED", step="COMPLETED", code="0:0", node="gpu18")
SHOWN = """\
JobId=88123 JobName=train
   JobState={state} Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={code}
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=gpu18
   BatchHost=gpu18
"""


def told(tmp_path, text):
    path = tmp_path / "sacct.txt"
    path.write_text(text)
    item = Item(path, path.name, path.stat().st_size, 0)
    assert sniff(item.head(), path.name)
    return read(item).records


def test_a_job_that_ended_well_although_a_step_was_cancelled(tmp_path):
    (tmp_path / "slurm-88123.out").write_text(OUTPUT)
    assert diagnose([tmp_path]).verdict.cause == "job-ended-from-outside"
    (tmp_path / "sacct.txt").write_text(GOOD)
    verdict = diagnose([tmp_path]).verdict
    assert (verdict.category, verdict.culprits.ranks, verdict.culprits.hosts) == ("healthy", (), ())


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "JobID|State|ExitCode\n88123|COMPLETED|0:0\n88123.0|COMPLETED|0:0\n",
        SHOWN.format(state="COMPLETED", code="0:0"),
    ],
)
def test_every_form(tmp_path, text):
    (event,) = told(tmp_path, text)
    assert isinstance(event, RunFinished)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("OUT_OF_MEMORY", HostOutOfMemory), ("TIMEOUT", JobEnded),
        ("NODE_FAIL", JobEnded), ("PREEMPTED", JobEnded),
    ],
)  # fmt: skip
def test_other_ends_with_the_node_of_the_step(tmp_path, state, kind):
    (event,) = told(tmp_path, TABLE.format(whole="FAILED", step=state.replace("MORY", "+"), code="0:125", node="gpu18"))
    assert isinstance(event, kind)
    assert event.host == "gpu18"
    (shown,) = told(tmp_path, SHOWN.format(state=state, code="0:125"))
    assert isinstance(shown, kind)


def test_a_history_of_jobs_is_about_none_of_them(tmp_path):
    assert told(tmp_path, "JobID|State|ExitCode\n88123|COMPLETED|0:0\n88130|NODE_FAIL|1:0\n") == []


def test_what_a_step_says_counts_against_the_whole_job(tmp_path):
    """A script that goes on behind a failed step ends well itself."""
    assert (
        told(tmp_path, GOOD.replace("  COMPLETED      0:0           gpu18", "     FAILED      1:0           gpu18"))
        == []
    )


def test_a_traceback_is_not_outvoted(tmp_path):
    (tmp_path / "sacct.txt").write_text("JobID|State|ExitCode\n88123|COMPLETED|0:0\n")
    (tmp_path / "slurm-88123.out").write_text(
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    run()\n'
        "RuntimeError: shapes differ\n"
    )
    assert diagnose([tmp_path]).verdict.category == "crash"


REQUEUED = """\
JobID              State ExitCode        NodeList
------------ ----------- -------- ---------------
{}"""


@pytest.mark.parametrize(
    ("states", "ends"),
    [
        (("NODE_FAIL", "COMPLETED"), ["accounted"]),
        (("PREEMPTED", "TIMEOUT"), ["time limit"]),
        (("PREEMPTED", "PREEMPTED", "COMPLETED"), ["accounted"]),
        (("PREEMPTED", "RUNNING"), ["preemption"]),
    ],
)
def test_the_last_attempt_of_a_job_that_was_requeued_counts(tmp_path, states, ends):
    rows = "".join(
        f"40417        {s:>11}      0:0     gpu[17-18]\n40417.batch  {s:>11}      0:0  gpu17\n" for s in states
    )
    said = told(tmp_path, REQUEUED.format(rows))
    assert [event.how if isinstance(event, RunFinished) else event.reason for event in said] == ends


def test_two_components_of_one_job_are_no_attempts(tmp_path):
    rows = "40417+0          TIMEOUT      0:0           gpu17\n40417+1        COMPLETED      0:0           gpu18\n"
    (ended,) = told(tmp_path, REQUEUED.format(rows))
    assert isinstance(ended, JobEnded)


def test_tasks_that_exited_with_zero_outlive_the_errors_on_the_way(tmp_path):
    """Slurm says it of the tasks of a step: what was printed before did not end them."""
    error = 'Traceback (most recent call last):\n  File "data.py", line 88, in load\nOSError: image is truncated\n'
    (tmp_path / "slurm-88123.out").write_text(OUTPUT.partition("slurmstepd")[0] + error)
    assert diagnose([tmp_path]).verdict.category == "crash"
    (tmp_path / "sacct.txt").write_text(GOOD)
    assert diagnose([tmp_path]).verdict.category == "healthy"
    (tmp_path / "sacct.txt").write_text("".join(row for row in GOOD.splitlines(keepends=True) if "123.0" not in row))
    assert diagnose([tmp_path]).verdict.category == "crash"
