"""What Slurm says, read and judged: environments and answers as a real Slurm 22.05 gave them."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from tests import cost
from whichrank.evidence.bundle import Bundle
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model import host_lists
from whichrank.model import last_words as layout
from whichrank.model.last_words import Words
from whichrank.run.resume import requeue, slurm
from whichrank.run.resume.checkpoints import Checkpoint, Found
from whichrank.run.resume.decision import Attempt, Plan
from whichrank.run.resume.scheduler import Heard, Scheduler
from whichrank.run.watch.job_processes import JobProcesses, Member
from whichrank.worker import lastwords

STEP = {
    "SLURM_STEP_NUM_TASKS": "2", "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_LOCALID": "0", "SLURM_SUBMIT_DIR": "/tmp/j",
    "SLURMD_NODENAME": "n2", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_STEPID": "0",
    "SLURM_JOBID": "1", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0", "SLURM_NNODES": "2",
    "SLURM_JOB_ID": "1", "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_JOB_NAME": "train",
    "SLURM_JOB_NODELIST": "n[1-2]",
}  # fmt: skip
BATCH = {
    "SLURM_LOCALID": "0", "SLURM_SUBMIT_DIR": "/tmp/j", "SLURMD_NODENAME": "n1", "SLURM_PROCID": "0",
    "SLURM_NODELIST": "n[1-2]", "SLURM_JOB_ID": "1", "SLURM_JOB_NAME": "train", "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_RESTART_COUNT": "2",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[1-2],gpu-[001-003],login", ["n1", "n2", "gpu-001", "gpu-002", "gpu-003", "login"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("r[1,3]-ib", ["r1-ib", "r3-ib"]),
        ("n[a-b]", ["na-b"]),
        ("n[1-", ["n[1-"]),
    ],
)
def test_lists_of_nodes(text: str, names: list[str]) -> None:
    assert host_lists.expand(text) == names


def test_a_list_that_never_ends() -> None:
    with cost.at_most(5):
        assert len(host_lists.expand("n[1-999999999],m[1-999999999]")) <= host_lists.MOST_NODES
        assert len(host_lists.expand("n[1-90000]x[1-90000]")) <= host_lists.MOST_NODES


def test_a_task_of_a_step() -> None:
    known = slurm.here(STEP)
    assert known is not None
    assert (known.job, known.step, known.node, known.nodes) == ("1", "0", "n2", ("n1", "n2"))
    assert (known.task, known.tasks, known.restarts, known.first, known.shared) == (1, 2, 0, False, True)
    assert known.folder == Path("/tmp/j/whichrank-1.0")
    assert known.apart(Path("/out")) == Path("/out/n2")
    several = slurm.here(STEP | {"SLURM_STEP_TASKS_PER_NODE": "4(x2),1", "SLURM_STEP_NUM_TASKS": "9"})
    assert several is not None
    assert several.apart(Path("/out")) == Path("/out/n2-task1")


def test_the_batch_script_is_no_task() -> None:
    known = slurm.here(BATCH)
    assert known is not None
    assert (known.step, known.task, known.tasks, known.first, known.restarts) == ("", None, 1, True, 2)
    assert known.folder == Path("/tmp/j/whichrank-1")
    assert known.apart(known.folder) == known.folder


def test_outside_of_slurm() -> None:
    assert slurm.here({"SLURM_CONF": "/etc/slurm.conf"}) is None
    assert slurm.here({"SLURM_JOB_ID": "1; rm -rf /"}) is None


def shown(state: str, **more: str) -> dict[str, str]:
    """As scontrol answers while the processes of the job are ended."""
    line = (
        "JobId=1 JobName=a b.sbatch JobState={} Reason=None Restarts=0 TimeLimit=00:01:00 EndTime={} PreemptTime=None"
    )
    text = line.format(state, datetime.now().astimezone().strftime("%Y-%m-%dT%H:%M:%S"))
    return slurm.shown(text) | more


@pytest.mark.parametrize(
    ("said", "restarts", "reason"),
    [
        (shown("COMPLETING", Reason="TimeLimit"), 0, "time limit"),
        (shown("TIMEOUT"), 0, "time limit"),
        (shown("COMPLETING"), 0, "cancelled"),
        (shown("COMPLETING", PreemptTime="2026-11-15T06:17:56"), 0, "preemption"),
        (shown("COMPLETING", Restarts="1"), 0, "job requeue"),
        (shown("COMPLETING", Restarts="1"), 1, "cancelled"),
        (shown("NODE_FAIL"), 0, "node failure"),
        (shown("RUNNING"), 0, ""),
        ({}, 0, ""),
    ],
)
def test_why_a_job_is_ended(said: dict[str, str], restarts: int, reason: str) -> None:
    known = slurm.here(STEP | {"SLURM_RESTART_COUNT": str(restarts)})
    assert known is not None
    assert slurm.reason(known, said, time.time_ns()) == reason


def test_a_controller_that_is_silent_leaves_the_clock() -> None:
    known, now = slurm.here(STEP | {"SLURM_JOB_END_TIME": "1794724404"}), 1_794_724_404_000_000_000
    assert known is not None
    assert known.ends_ns == now
    assert slurm.reason(known, {}, now - 2_000_000_000) == "time limit"
    assert slurm.reason(known, {}, now + 25_000_000_000) == "time limit"
    assert slurm.reason(known, {}, now - 60_000_000_000) == ""


def test_the_limit_is_in_the_zone_of_the_host() -> None:
    moment = datetime(2026, 11, 15, 6, 14, 29).astimezone()
    assert slurm.limit_ns({"EndTime": "2026-11-15T06:14:29", "TimeLimit": "00:01:00"}) == moment.timestamp() * 1e9
    assert slurm.limit_ns({"EndTime": "Unknown", "TimeLimit": "UNLIMITED"}) is None
    assert slurm.limit_ns({"EndTime": "soon", "TimeLimit": "00:01:00"}) is None


# -- signals


def test_what_slurm_repeats_is_passed_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichrank.run.resume.scheduler._program", {7: "slurmstepd", 8: "bash"}.get)
    scheduler = Scheduler(slurm.here(STEP))
    assert [scheduler.hear(signal.SIGTERM, 7), scheduler.hear(signal.SIGTERM, 7)] == [True, False]
    assert scheduler.ends_it(1)
    person = Scheduler()
    assert [person.hear(signal.SIGTERM, 8), person.hear(signal.SIGTERM, 8)] == [True, True], "a person may insist"
    assert person.leaving
    assert not person.ends_it(-15)


def test_a_person_at_the_terminal_of_an_allocation() -> None:
    scheduler = Scheduler(slurm.here(BATCH))
    scheduler.ended = Heard(signal.SIGINT, "", time.time_ns())
    assert scheduler.leaving
    assert not scheduler.ends_it(-signal.SIGINT)


def test_a_warning_is_the_jobs_unless_it_is_to_be_queued_again() -> None:
    scheduler = Scheduler(slurm.here(BATCH))
    assert scheduler.hear(signal.SIGUSR1, 1)
    assert not scheduler.leaving
    assert not scheduler.ends_it(1)
    assert scheduler.ends_it(-signal.SIGUSR1), "the launcher did not know it, and was ended by it"
    assert set(scheduler.told()) == {"warned_by"}
    scheduler = Scheduler(slurm.here(BATCH), requeues=True)
    assert not scheduler.hear(signal.SIGUSR1, 1)
    assert scheduler.announced
    assert scheduler.ends_it(1)


def test_a_pod_is_ended_by_somebody_who_is_not_seen() -> None:
    scheduler = Scheduler.here({"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    scheduler.ended = Heard(signal.SIGTERM, "", time.time_ns())
    assert scheduler.ends_it(1)
    scheduler.ended = replace(scheduler.ended, sender="bash")
    assert not scheduler.ends_it(1)


@pytest.mark.parametrize(("late_s", "words"), [(12, "12 s before it"), (-3, "3 s after it")])
def test_the_end_is_evidence_and_nobody_is_accused(tmp_path: Path, late_s: int, words: str) -> None:
    known, now = slurm.here(BATCH), time.time_ns()
    assert known is not None
    scheduler = Scheduler(replace(known, ends_ns=now - late_s * 1_000_000_000))
    scheduler.ended = Heard(signal.SIGTERM, "slurmstepd", now)
    bundle = Bundle(tmp_path / "bundle", "n1")
    scheduler.keep(bundle)
    rows = [{"rank": rank, "pid": 7 + rank, "world_size": 2, "phase": "joined", "alive": False, "signal": 15,
             "ended_ns": now + 10_000_000} for rank in range(2)]  # fmt: skip
    document = {"whichrank_last_words": 1, "host": "n1", "processes": rows}
    bundle.add("last_words.json", json.dumps(document).encode(), "last words")
    bundle.close(scheduler.facts())
    found = diagnose([bundle.folder], jobs=1)
    assert found.verdict.cause == "job-ended-from-outside"
    assert found.verdict.culprits.ranks == found.verdict.culprits.hosts == ()
    assert "time limit" in found.verdict.summary
    quotes = [ref.quote for finding in found.findings for ref in finding.evidence]
    assert any("SIGTERM from slurmstepd, time limit" in quote and words in quote for quote in quotes), quotes
    assert found.job.scheduler is not None
    assert (found.job.scheduler.id, found.job.scheduler.nodes) == ("1", ("n1", "n2"))


# -- one start after the other


def attempt(number: int, newest: str | None, cause: str = "job-ended-from-outside", **more: object) -> Attempt:
    found = Found(Checkpoint(Path(newest), "whichrank")) if newest else Found()
    return Attempt(number, "2026-11-15T06:00:00.000Z", left=found, cause=cause, seconds=36, world=100, **more)  # type: ignore[arg-type]


def test_attempts_are_kept_from_one_start_to_the_next(tmp_path: Path) -> None:
    before = [attempt(0, "/c/step-5", code=1, ranks=(3,), hosts=("n7",)), attempt(1, None, "", position=12)]
    requeue.save(tmp_path, before)
    (tmp_path / "verdict.json").write_text("{}")
    known = slurm.here(BATCH)
    again = requeue.take_over(tmp_path, known, ("verdict.json", "bundle"))
    assert [(a.number, a.newest, a.cause, a.ranks, a.position, a.code) for a in again] == [
        (a.number, a.newest, a.cause, a.ranks, a.position, a.code) for a in before
    ]
    assert all(a.earlier for a in again)
    assert (tmp_path / "attempts/1/verdict.json").exists()
    assert requeue.take_over(tmp_path, slurm.here(STEP), ()) == [], "the first start knows of none"


@pytest.mark.parametrize("text", ["", "[", '[{"started": 7}]', '{"a": 1}', "[" * 100_000])
def test_a_broken_list_of_attempts_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / requeue.NAME).write_text(text)
    assert requeue.load(tmp_path) == []


def test_a_job_that_gets_nowhere_is_not_queued_again(tmp_path: Path) -> None:
    plan = Plan(checkpoints=tmp_path, requeue=True)
    assert requeue.reason_not(plan, [attempt(0, "/c/5"), attempt(1, "/c/9"), attempt(2, "/c/12")]) == ""
    stuck = [attempt(n, "/c/5", cause) for n, cause in enumerate(("job-ended-from-outside", "", "rank-killed"))]
    assert "no newer checkpoint" in requeue.reason_not(plan, stuck)
    alike = [attempt(n, "/c/5", "rank-exception", ranks=(1,), place="train.py:7") for n in range(2)]
    assert "failed twice in the same way" in requeue.reason_not(plan, alike)
    assert "GPU-hours" in requeue.reason_not(replace(plan, gpu_hours=1.5), [attempt(0, "/c/5"), attempt(1, "/c/9")])


# -- ranks that nobody has named yet


def test_a_task_is_a_rank_before_torch_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in STEP.items():
        monkeypatch.setenv(name, value)
    words = lastwords.Recorder(str(tmp_path)).words
    assert (words.rank, words.local_rank, words.world) == (1, 0, 2)
    assert not words.is_rank, "any program of a task has the number"
    assert words._replace(phase=layout.IMPORTING).is_rank
    monkeypatch.setenv("RANK", "5")
    assert lastwords.Recorder(str(tmp_path)).words.rank == 5
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("SLURM_STEP_ID")
    assert lastwords.Recorder(str(tmp_path)).words.rank == -1, "in the batch script the numbers mean nothing"


def test_a_launcher_in_a_task_is_no_rank() -> None:
    guessed = Words(pid=10, rank=1, world=2, phase=layout.IMPORTED, flags=layout.GUESSED)
    known = Words(pid=11, parent=10, rank=3, world=4, phase=layout.JOINED)
    job_processes = JobProcesses(Path("/nonexistent"), {"10": Member(guessed, "10"), "11": Member(known, "11")})
    assert [member.rank for member in job_processes.ranks()] == [3]
    del job_processes.members["11"]
    assert [member.rank for member in job_processes.ranks()] == [1]


@pytest.mark.parametrize(
    ("line", "launches"),
    [
        (b"/usr/bin/python3\0/venv/bin/torchrun\0--nproc-per-node=2\0train.py\0", True),
        (b"python\0-u\0-m\0torch.distributed.run\0train.py\0", True),
        (b"/venv/bin/python\0/venv/bin/accelerate\0launch\0train.py\0", True),
        (b"python\0train.py\0--strategy\0deepspeed\0", False),
        (b"python\0-m\0train\0torchrun\0", False),
        (b"", False),
    ],
)
def test_launchers_by_their_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: bytes, launches: bool
) -> None:
    (tmp_path / "cmdline").write_bytes(line)
    real = open
    monkeypatch.setattr("builtins.open", lambda path, *a, **k: real(
        tmp_path / "cmdline" if path == "/proc/self/cmdline" else path, *a, **k))  # fmt: skip
    assert lastwords._launches() is launches
