"""`run --restart N --escalate`: more evidence while nobody knows why, what it costs, and back to normal afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.run import watched
from whichrank.run.resume import escalation
from whichrank.run.resume.checkpoints import Found
from whichrank.run.resume.decision import Attempt, Plan, reason_to_stop
from whichrank.run.resume.restarts import Restarts

PLAN = Plan(restarts=9, escalate=True)


def attempt(cause: str, level: int = 0, **more: object) -> Attempt:
    made = Attempt(0, "2026-01-01T00:00:00Z", Found(), left=Found(), cause=cause, code=1, level=level, position=30)
    made.confidence = 0.9
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_each_unexplained_failure_gets_more_and_a_verdict_ends_it() -> None:
    assert [escalation.next_level(level, "unknown") for level in (0, 1, 2, 3)] == [1, 2, 3, 3]
    assert escalation.next_level(2, "rank-exception") == 0
    assert "CUDA_LAUNCH_BLOCKING" not in {name for level in escalation.LEVELS[:-1] for name in level.variables}
    assert escalation.LEVELS[-1].variables["CUDA_LAUNCH_BLOCKING"] == "1"
    assert all(level.cost for level in escalation.LEVELS)


def test_what_the_user_has_set_stays() -> None:
    found, kept = escalation.added(escalation.LEVELS[1], {"NCCL_DEBUG": "TRACE"})
    assert "NCCL_DEBUG" not in found
    assert kept == ["NCCL_DEBUG"]


def test_an_unexplained_failure_is_no_reason_to_stop_until_nothing_is_left() -> None:
    same = [attempt("unknown", 0), attempt("unknown", 1)]
    assert reason_to_stop(PLAN, same) == ""
    assert "failed twice in the same way" in reason_to_stop(Plan(restarts=9), same)
    assert "all the evidence" in reason_to_stop(PLAN, [*same, attempt("unknown", 2), attempt("unknown", 3)])


def test_a_failure_that_was_explained_at_the_same_place_is_not_tried_again() -> None:
    known = attempt("rank-exception", 1, ranks=(1,), place="train.py:7")
    why = reason_to_stop(PLAN, [attempt("unknown"), known])
    assert why == (
        "the cause is known now (rank-exception of rank 1 at train.py:7), and it fails at the same place every time"
    )
    assert reason_to_stop(PLAN, [attempt("unknown", position=900), known]) == "", "it was another failure"


def test_who_ended_without_a_line_of_code_explains_nothing() -> None:
    """A rank that is seen to call sys.exit first is named, and nobody knows yet why it did."""
    silent = attempt("rank-exception", ranks=(1,))
    assert silent.explained_by == "unknown"
    assert reason_to_stop(PLAN, [silent, attempt("rank-exception", 1, ranks=(1,))]) == ""
    known = attempt("rank-exception", 1, ranks=(1,), place="train.py:7")
    assert known.explained_by == "rank-exception"
    assert reason_to_stop(PLAN, [silent, known]).startswith("the cause is known now (rank-exception of rank 1")
    assert attempt("link-down").explained_by == "link-down"


def test_the_cost_is_told_and_normal_comes_back(tmp_path: Path) -> None:
    told: list[str] = []
    restarts = Restarts(PLAN, tmp_path, told.append)
    normal = {"WHICHRANK_EXITS": "counts"}
    assert restarts.prepare()[1] == normal, "how far the first attempt came is all that is noted in addition"
    restarts.current.cause = "unknown"
    assert restarts.prepare()[1]["TORCH_FR_BUFFER_SIZE"] == "20000"
    assert told[-1].startswith("the failure is unexplained: the next attempt has more evidence. Cost: longer logs")
    restarts.current.cause = "unknown"
    restarts.prepare()
    assert (restarts.level.guard, restarts.level.gdb) == ("strict", True)
    restarts.current.cause, restarts.current.confidence = "link-down", 0.9
    assert restarts.prepare()[1] == normal
    assert told[-1] == "the cause is known (link-down): back to normal"
    levels = [each["evidence"] for each in restarts.told()["restart"]["attempts"]]
    assert levels == ["normal", "more evidence", "every collective checked", "normal"]


def test_it_needs_restarts(whichrank) -> None:
    done = whichrank("run", "--escalate", "--", "true")
    assert done.returncode == 2
    assert "--restart 3 --escalate" in done.stderr


@pytest.mark.parametrize(
    ("ending", "code", "last"),
    [
        ("sys.exit(3)", 3, "SilentExit: sys.exit(3) ended this process without a message"),
        ("os._exit(7)", 7, "SilentExit: os._exit(7) ended this process without a message"),
        ("sys.exit()", 0, None),
        ("sys.exit('bye')", 1, None),
        ("leave()", 4, "KeyError: 'weights'"),
    ],
)
def test_an_exit_leaves_a_traceback_and_its_code(tmp_path: Path, ending: str, code: int, last: str | None) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, traceback\nfrom whichrank.worker.exits import trace\n"
        f"def tell(error):\n    with open({str(tmp_path / 'said')!r}, 'w') as stream:\n"
        "        stream.write(''.join(traceback.format_exception(error)))\n"
        "def leave():\n    try:\n        {}['weights']\n    except KeyError:\n        sys.exit(4)\n"
        f"trace(tell, lambda: True)\ndef end():\n    {ending}\nend()\n"
    )
    done = subprocess.run(
        [sys.executable, program], env={"PYTHONPATH": str(ROOT / "src")}, check=False, capture_output=True
    )
    assert done.returncode == code, done.stderr
    if last is None:
        assert not (tmp_path / "said").exists()
    else:
        said = (tmp_path / "said").read_text()
        assert said.strip().endswith(last)
        assert f'File "{program}"' in said
        assert "exits.py" not in said


@pytest.mark.bars
@pytest.mark.parametrize(
    ("how", "ranks", "line"),
    [
        ("everybody", [0, 1], "give_up"),
        ("all_swallow", [0, 1], "check"),
        ("all_leave", [0, 1], "leave_early"),
        ("exit", [1], "give_up"),
        ("swallowed", [1], "check"),
    ],
)
def test_drills_that_the_first_run_leaves_unknown_are_settled(
    tmp_path: Path, how: str, ranks: list[int], line: str
) -> None:
    pytest.importorskip("torch")
    done = silent_job(tmp_path, how)
    attempts = done.document("run.json")["restart"]["attempts"]
    assert [each["evidence"] for each in attempts] == ["normal", "more evidence"], json.dumps(attempts, indent=1)
    # Whoever is seen to end first may be named, without a line that says why.
    assert attempts[0]["cause"] == "unknown" or attempts[0]["place"] is None, json.dumps(attempts, indent=1)
    assert "the failure is unexplained" in done.stderr
    assert attempts[1]["cause"] == "rank-exception"
    assert attempts[0]["position"] == attempts[1]["position"], "both are known to the last collective"
    assert done.verdict["culprits"]["ranks"] == ranks
    assert done.verdict["culprits"]["code"][0]["function"] == line
    assert "Cost: longer logs and some memory" in done.stderr
    assert "the cause is known now (rank-exception" in done.stderr


def silent_job(folder: Path, *how: str) -> watched.Done:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    command = [*launcher, "--master_port", str(watched.free_port()), str(watched.HERE / "silent_job.py"), *how]
    return watched.run(command, folder / "out", "--no-history", "--restart", "3", "--escalate", limit_s=900)


@pytest.mark.bars
def test_a_start_after_the_verdict_is_a_normal_one(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = silent_job(tmp_path, "elsewhere", str(tmp_path / "starts"))
    attempts = done.document("run.json")["restart"]["attempts"]
    assert [each["evidence"] for each in attempts] == ["normal", "more evidence", "normal"], done.stderr
    assert attempts[0]["place"] is None, "who ended silently can only be guessed at"
    assert (attempts[1]["cause"], attempts[1]["place"].rpartition("/")[2]) == ("rank-exception", "silent_job.py:30")
    assert "the cause is known (rank-exception): back to normal" in done.stderr
    assert done.code == 0
