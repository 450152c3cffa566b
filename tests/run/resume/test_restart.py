"""When a failed job is started again, and when not."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from whichrank.model.errors import UsageError
from whichrank.model.findings import CodePlace, Gpu, Subject
from whichrank.model.verdict import Diagnosis, Position, RankInfo, Verdict
from whichrank.run.resume.checkpoints import Checkpoint, Found
from whichrank.run.resume.decision import (
    LONGEST_PAUSE_S,
    UNSHARED,
    Attempt,
    Plan,
    convicted,
    pause_s,
    reason_to_stop,
    trap,
    used_gpu_hours,
)
from whichrank.run.resume.restarts import EXCLUDED, Restarts

PLAN = Plan(restarts=5)


def found(name: str | None) -> Found:
    return Found(Checkpoint(Path(name), "file")) if name is not None else Found()


def attempt(given: str | None = None, left: str | None = None, **more: object) -> Attempt:
    made = Attempt(0, "2026-01-01T00:00:00Z", found(given), found(left), cause="rank-exception", ranks=(1,), code=1)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_once_is_no_loop() -> None:
    assert reason_to_stop(PLAN, [attempt()]) == ""


def test_the_same_failure_twice_at_the_same_place() -> None:
    twice = [attempt(None, "step5", place="train.py:7"), attempt("step5", "step5", place="train.py:7")]
    why = reason_to_stop(PLAN, twice)
    assert "failed twice in the same way (rank-exception of rank 1 at train.py:7)" in why
    assert "no checkpoint newer than step5" in why


@pytest.mark.parametrize(
    "second",
    [
        attempt("step5", "step9", place="train.py:7"),  # it came further
        attempt("step5", "step5", place="train.py:8"),
        attempt("step5", "step5", place="train.py:7", cause="rank-killed"),
        attempt("step5", "step5", place="train.py:7", ranks=(2,)),
    ],
)
def test_something_else_is_no_loop(second: Attempt) -> None:
    assert reason_to_stop(PLAN, [attempt(None, "step5", place="train.py:7"), second]) == ""


def test_from_the_same_start_the_step_counts() -> None:
    def tries(one: int | None, other: int | None) -> str:
        return reason_to_stop(PLAN, [attempt("a", "a", position=one), attempt("a", "a", position=other)])

    assert "twice" in tries(1000, 1003)
    assert "twice" in tries(100_000, 100_400)
    assert "twice" in tries(None, None), "neither got anywhere"
    assert tries(1000, 1400) == ""
    assert tries(None, 1400) == ""


def test_unknown_failures_from_different_starts_prove_nothing() -> None:
    assert (
        reason_to_stop(PLAN, [attempt(None, "a", ranks=(), position=9), attempt("a", "a", ranks=(), position=5)]) == ""
    )


def test_the_number_and_the_budget() -> None:
    moving = [attempt(None, "a", place="x:1"), attempt("a", "b", place="x:1"), attempt("b", "c", place="x:1")]
    assert reason_to_stop(Plan(restarts=3), moving) == ""
    assert "may be launched again 2 times" in reason_to_stop(Plan(restarts=2), moving)
    for each in moving:
        each.seconds, each.world = 3600.0, 4
    assert used_gpu_hours(moving) == 12
    assert "12 GPU-hours are used of the 10" in reason_to_stop(Plan(restarts=9, gpu_hours=10), moving)
    assert reason_to_stop(Plan(restarts=9, gpu_hours=13), moving) == ""


def test_what_the_launcher_starts_anew_is_not_counted() -> None:
    moving = [attempt(None, "a"), attempt("a", "b", by_agent=True), attempt("b", "c", by_agent=True)]
    assert reason_to_stop(Plan(restarts=1), moving) == ""


def test_ended_from_outside() -> None:
    assert reason_to_stop(PLAN, [attempt(cause="job-ended-from-outside")]) == "it was ended from outside"


def test_pauses_grow_and_begin_anew_after_progress() -> None:
    stuck = [attempt("a", "a", place=f"x:{number}") for number in range(12)]
    for count, expected in ((1, 1), (2, 2), (4, 8), (12, LONGEST_PAUSE_S)):
        assert 0.75 * expected <= pause_s(stuck[:count]) <= 1.25 * expected
    assert pause_s([*stuck, attempt("a", "b")]) <= 1.25


def judged(cause: str, confidence: float, *hosts: str) -> Attempt:
    culprits = Subject(ranks=(0,), gpus=tuple(Gpu(host, 0) for host in hosts), code=(CodePlace("train.py", 7),))
    verdict = Verdict("crash", cause, culprits, (), confidence, "It broke.")
    made = Attempt(0, "")
    ranks = (RankInfo(0, at=Position("0", 41, "all_reduce")), RankInfo(1, at=Position("0", 42, "all_reduce")))
    made.judged(Diagnosis(verdict, ranks=ranks))
    return made


def test_what_is_kept_of_a_verdict() -> None:
    made = judged("ecc-error", 0.9, "node7")
    assert (made.cause, made.ranks, made.hosts, made.place, made.position) == (
        "ecc-error", (0,), ("node7",), "train.py:7", 42,
    )  # fmt: skip


def test_only_proven_hardware_convicts_and_one_host_at_a_time() -> None:
    assert convicted(judged("ecc-error", 0.9, "node7")) == "node7"
    assert convicted(judged("ecc-error", 0.6, "node7")) == ""
    assert convicted(judged("rank-exception", 0.95, "node7")) == ""
    assert convicted(judged("gpu-fell-off-bus", 0.95, "node7", "node8")) == ""


@pytest.mark.parametrize("asked", [True, False])
def test_a_bad_host_is_left_out_only_if_asked(tmp_path: Path, asked: bool) -> None:
    told: list[str] = []
    restarts = Restarts(Plan(restarts=5, exclude_hosts=asked), tmp_path, told.append)
    restarts.prepare()
    restarts.on_verdict(_diagnosis("node7"))
    assert restarts.again(1, asked=False, outside=False)
    excluded = tmp_path / EXCLUDED
    assert excluded.exists() is asked
    if asked:
        assert excluded.read_text() == "node7\tecc-error\n"
        assert "node7 is left out" in told[0]


def test_this_host_declines_when_it_is_the_bad_one(tmp_path: Path) -> None:
    here = socket.gethostname()
    restarts = Restarts(Plan(restarts=5, exclude_hosts=True), tmp_path, lambda _text: None)
    restarts.prepare()
    restarts.on_verdict(_diagnosis(here))
    assert not restarts.again(1, asked=False, outside=False)
    assert restarts.stopped == "this host is left out (ecc-error)"
    with pytest.raises(UsageError, match="was left out: ecc-error"):
        Restarts(Plan(restarts=5, exclude_hosts=True), tmp_path, lambda _text: None)
    Restarts(Plan(restarts=5), tmp_path, lambda _text: None)


def _diagnosis(host: str) -> Diagnosis:
    return Diagnosis(Verdict("crash", "ecc-error", Subject(hosts=(host,)), (), 0.9, "It broke."))


@pytest.mark.parametrize("code", [-15, -2, -1, -3])
def test_signals_of_people_and_schedulers_end_it(tmp_path: Path, code: int) -> None:
    restarts = Restarts(PLAN, tmp_path, lambda _text: None)
    restarts.prepare()
    assert not restarts.again(code, asked=False, outside=False)
    assert restarts.stopped == "it was ended from outside"


def test_a_hang_that_we_ended_comes_back_though_the_launcher_died_of_our_signal(tmp_path: Path) -> None:
    restarts = Restarts(PLAN, tmp_path, lambda _text: None)
    restarts.prepare()
    assert restarts.again(-15, asked=False, outside=False, hung=True)


@pytest.mark.parametrize(
    ("options", "variables", "told", "own_store"),
    [
        ("--max-restarts 3 --master_port 29500", {}, "a store of their own", True),
        ("--nnodes=1:1 --max_restarts=3", {}, "a store of their own", True),
        ("--max_restarts=3 --nnodes 2", {}, "add --rdzv-backend=c10d", False),
        ("--max_restarts=0", {}, "", False),
        ("--max-restarts 3 --standalone", {UNSHARED: "1"}, "is set", False),
        ("--max-restarts 3 --rdzv_backend=c10d", {UNSHARED: "1"}, "is set", False),
        ("--nproc-per-node 2", {}, "", False),
    ],
)
def test_restarted_ranks_must_not_meet_the_dead(
    options: str, variables: dict[str, str], told: str, own_store: bool
) -> None:
    command = ["torchrun", *options.split(), "train.py"]
    known = trap(command, {})
    assert (known.variables, known.own_store, bool(known.told)) == (variables, own_store, bool(told))
    assert told in known.told
    assert trap(command, {UNSHARED: "0"}).variables == {}, "what the user has set stays"


def test_how_a_checkpoint_is_handed_on() -> None:
    plan = Plan(argument="--resume '{path}' --strict", variable="RESUME_FROM")
    assert plan.arguments(Path("/a b/c")) == ["--resume", "/a b/c", "--strict"]
    assert plan.variables(Path("/a")) == {"RESUME_FROM": "/a"}
    assert (plan.arguments(None), plan.variables(None)) == ([], {})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--resume-env", "A"], "no checkpoint to resume from"),
        (["--resume-arg", "--resume", "--checkpoints", "x"], "has no {path}"),
        (["--resume-env", "A B", "--checkpoints", "x"], "is not a variable name"),
    ],
)
def test_what_can_t_work_is_said_before_the_start(whichrank, options: list[str], said: str) -> None:
    done = whichrank("run", *options, "--", "true")
    assert done.returncode == 2
    assert said in done.stderr
