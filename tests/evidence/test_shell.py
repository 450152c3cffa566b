"""Transcripts of shells: exit codes, and what is not of the job."""

from __future__ import annotations

import pytest

from tests.rules import crash_texts as texts
from whichrank.evidence.readers.torch_output.shell import Shell
from whichrank.records.events.launchers import ProcessExit
from whichrank.records.events.run_state import RunFinished

STEPS = "".join(f"epoch {n}/90 loss {5.0 - n / 20:.2f}\n" for n in range(1, 5))


def codes(text):
    told = Shell()
    return [code for line in text.encode().split(b"\n") if (code := told.feed(line)) is not None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$ torchrun train.py\nstep 1\n$ echo $?\n0\n", [0]),
        ("step 1\n$ echo $?\n0\n", [0]),
        ("user@n1:~/job$ python train.py\nboom\nuser@n1:~/job$ echo $?\n137\n", [137]),
        ("[root@n1 job]# srun train.sh; echo rc=$?\nstep 1\nstep 2\nrc=3\n", [3]),
        ('n1$ torchrun train.py; echo "exit code: $?"\nloss 4\nexit code: 0\n', [0]),
        ("(venv) $ bash run.sh\n(venv) $ echo ${?}\n\n1\n", [1]),
        ("$ nc -zv n2 29500; echo $?\nConnection to n2 29500 port succeeded!\n0\n", []),
        ("$ torchrun train.py\n$ ping -c1 n2\n$ echo $?\n0\n", []),
        ("$ torchrun train.py\n^C\n$ echo $?\n130\n", []),
        ("$ echo $?\nstep 1\n0\n", []),
        ("step 1\n0\n", []),
    ],
)
def test_codes_of_the_job_alone(text, expected):
    assert codes(text) == expected


def test_a_run_that_ended_with_zero_finished(tmp_path):
    case = texts.case_of(texts.write(tmp_path, {"out.txt": f"{STEPS}$ echo $?\n0\n"}))
    assert [event.how for event in case.events(RunFinished)] == ["exit"]
    assert case.finish is not None


def test_a_run_that_ended_otherwise_did_not(tmp_path):
    case = texts.case_of(texts.write(tmp_path, {"out.txt": f"$ python train.py\n{STEPS}$ echo $?\n139\n"}))
    assert case.finish is None
    assert [(event.exitcode, event.signal) for event in case.events(ProcessExit)] == [(139, 11)]


@pytest.mark.parametrize(
    "tried",
    [
        "n1$ nc -zv n2 29500 -> succeeded\n",
        "n1$ nc -zv n2 29500 -> completed\n",
        "$ ssh n2 uptime; echo rc=$?\n 10:00 up 3 days\nrc=0\n",
        "[root@n1 ~]# curl -s n2:8080/health\njob service: run completed\n",
        "user@n1:~$ sudo systemctl status trainer\ntrainer.service: deactivated successfully\n",
    ],
)
def test_what_somebody_tried_beside_the_job_is_not_its_end(tmp_path, tried):
    assert texts.case_of(texts.write(tmp_path, {"out.txt": STEPS + tried})).finish is None


@pytest.mark.parametrize(
    "asked",
    ["$ seff 33\nState: COMPLETED (exit code 0)\n", "n1$ nc -z n2 22\nn1$ tail -1 job.log\ntraining finished\n"],
)
def test_what_somebody_asked_about_the_job_is(tmp_path, asked):
    assert texts.case_of(texts.write(tmp_path, {"out.txt": STEPS + asked})).finish is not None


def test_a_state_that_a_launcher_comes_to_is(tmp_path):
    text = f"{STEPS}(TrainController pid=3301) [State Transition] RUNNING -> FINISHED.\n"
    assert texts.case_of(texts.write(tmp_path, {"out.txt": text})).finish is not None
