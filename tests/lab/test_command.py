"""The verb, as a person uses it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from whichrank.cli.main import run

OWN_FAULT = '''"""A rank raises an error of its own."""
CAUSE = "rank-exception"
CATEGORY = "crash"
WORKLOAD = "loader"
ENDING = "crash"


def inside(rank, point, value):
    if point == "forward" and rank.guilty and rank.due:
        rank.strike()
        raise KeyError("missing column")
'''


def whichrank(*arguments, **options):
    command = [sys.executable, "-c", "from whichrank.cli.main import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)


def test_list_as_json(capsys):
    assert run(["drill", "list", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"fault", "cause", "needs", "summary"} <= set(rows[0])
    assert {"skipped_collective", "killed"} <= {row["fault"] for row in rows}
    assert next(row for row in rows if row["fault"] == "killed")["needs"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["killed"], "whichrank drill run killed"),
        (["run"], "no fault is named"),
        (["run", "kiled"], "Did you mean killed"),
        (["run", "killed", "--fault", "x.py"], "both a name and a file are given"),
        (["run", "--fault", "/nonexistent.py"], "there is no Python file"),
        (["run", "killed", "--ranks", "65"], "65"),
        (["score", "killed", "--ranks", "2,x"], "are not sizes"),
    ],
)
def test_mistakes_are_met_with_the_next_step(capsys, arguments, said):
    assert run(["drill", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "it lacks"),
        ('"""Doc."""\nCAUSE = "no-such"\nCATEGORY = "hang"\nWORKLOAD = "ddp"\n', "not a cause of the taxonomy"),
        ('"""Doc."""\nCAUSE = "rank-killed"\nCATEGORY = "hang"\nWORKLOAD = "dpd"\n', "no workload 'dpd'"),
        ('"""Doc."""\nCAUSE = "rank-killed"\nCATEGORY = "hang"\nWORKLOAD = "ddp"\n', "it has none of"),
        ("1/0\n", "ZeroDivisionError"),
    ],
)
def test_a_file_that_is_no_fault_is_refused(tmp_path, capsys, text, said):
    file = tmp_path / "mine.py"
    file.write_text(text)
    assert run(["drill", "run", "--fault", str(file)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_fault_of_ones_own_is_run_and_told_beside_the_truth(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN_FAULT)
    done = whichrank(
        "drill", "run", "--fault", str(file), "--ranks", "2", "--seed", "3", "--launcher", "fork",
        "--keep", str(tmp_path / "kept"), "--format", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["verdict"]["cause"] == document["truth"]["cause"] == "rank-exception"
    assert document["verdict"]["culprits"]["ranks"] == document["truth"]["culprit_ranks"]
    assert (tmp_path / "kept" / "bundle" / "manifest.json").exists()


@pytest.mark.slow
def test_a_quiz_asks_before_it_tells():
    arguments = ("drill", "run", "killed", "--quiz", "--ranks", "2", "--seed", "3", "--launcher", "fork")
    done = whichrank(*arguments, input="0\nrank killed\n")
    assert done.returncode == 0, done.stderr
    assert "killed: 2 ranks" not in done.stderr
    assert "Which ranks are to blame" in done.stderr
    assert "you      rank-killed, ranks 0: " in done.stdout
    folder = done.stderr.split("The evidence is in ")[1].split("/out/bundle")[0]
    assert not Path(folder).exists()
