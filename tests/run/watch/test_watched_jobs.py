"""Real Gloo jobs of four ranks under torchrun, watched from outside: hung, killed, stopped, held, healthy."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.run import watched
from tests.run.watched import Done
from tests.together import Together

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.slow,
]
FAULTS = ("pauses", "alone", "absent", "skip", "stuck", "stop", "gil", "kill", "raise", "none", "three")
RANKS = range(4)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Mapping[str, Done]]:
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(
        "import os, sys\nif 'RANK' in os.environ: sys.stdout.write(f'the site of rank {os.environ[\"RANK\"]}\\n')\n"
    )

    def one(fault: str, folder: Path) -> Done:
        path = os.pathsep.join([str(site), watched.environment()["PYTHONPATH"]])
        # The healthy one as users start it.
        start = partial(watched.torchrun, world=2) if fault == "none" else partial(watched.forked, watched.JOB, world=4)
        command = start(fault, folder / "checkpoint")
        return watched.run(command, folder / "out", "--policy", "end", PYTHONPATH=path)

    begun = Together(one, FAULTS, 3, request)
    yield begun
    begun.close()


@pytest.mark.parametrize(
    ("fault", "causes"),
    [
        ("skip", {"conditional-collective", "collective-desync"}),
        pytest.param("stuck", {"rank-stuck-in-data-loading", "rank-stuck-in-user-code"}, marks=pytest.mark.bars),
        pytest.param("stop", {"rank-frozen", "rank-stuck-in-user-code", "collective-desync"}, marks=pytest.mark.bars),
        pytest.param("gil", {"rank-stuck-in-user-code", "collective-desync"}, marks=pytest.mark.bars),
    ],
)
def test_a_hang_is_noticed_and_the_rank_named(jobs: Mapping[str, Done], fault: str, causes: set[str]) -> None:
    job = jobs[fault]
    # Five times what a machine of its own takes (benchmarks/hang_to_verdict.py): other tests share the cores here.
    assert job.alarms["suspect"]["silence_s"] <= 75, job.alarms
    assert job.verdict["culprits"]["ranks"] == [2], job.verdict["summary"]
    assert job.verdict["category"] == "hang"
    assert job.verdict["cause"] in causes
    assert job.verdict["summary"].split()[0:2] == ["Rank", "2"]
    assert job.verdict["summary"][:40] in job.stderr.replace("\n", " "), "the verdict is told at once"
    assert job.code != 0, "the policy was to end it"


LONGER = [pytest.param(fault, marks=pytest.mark.bars) for fault in ("stuck", "stop", "gil")]


@pytest.mark.parametrize("fault", ["skip", "kill", *LONGER])
def test_evidence_of_every_rank(jobs: Mapping[str, Done], fault: str) -> None:
    job = jobs[fault]
    words = {row["rank"]: row for row in job.document("bundle/last_words.json")["processes"]}
    assert set(words) == set(RANKS)
    for rank in RANKS:
        if rank == 2 and fault in ("stop", "gil", "kill"):
            assert words[rank]["place"].startswith(str(watched.JOB)), "the last line that it was seen at"
            assert words[rank]["issued"] > 100
        else:
            assert f"dumps/rank_{rank}" in job.files, job.document("bundle/manifest.json")["missing"]
    missing = job.document("bundle/manifest.json")["missing"]
    told = any(entry["what"] == "flight recorder" and entry["rank"] == 2 for entry in missing)
    assert told != ("dumps/rank_2" in job.files), "a dump, kept in reserve, or why there is none"
    if fault == "gil":
        stack = (job.out / "bundle/stacks/rank_2.txt").read_text()
        assert "hold_the_interpreter" in stack, "a held interpreter can still be asked by a signal"


@pytest.mark.bars
def test_one_that_does_not_come(jobs: Mapping[str, Done]) -> None:
    job = jobs["absent"]
    assert "rank 2 has only torch imported" in job.alarms["confirmed"]["why"]
    assert (job.verdict["cause"], job.verdict["culprits"]["ranks"]) == ("missing-rank-at-init", [2])


def test_a_killed_rank(jobs: Mapping[str, Done]) -> None:
    job = jobs["kill"]
    assert job.code == 1
    assert (job.verdict["category"], job.verdict["cause"]) == ("crash", "rank-killed")
    assert job.verdict["culprits"]["ranks"] == [2]
    killed = next(row for row in job.document("bundle/last_words.json")["processes"] if row["rank"] == 2)
    assert (killed["signal_name"], killed["alive"]) == ("SIGKILL", False)


@pytest.mark.bars
def test_a_rank_that_raises(jobs: Mapping[str, Done]) -> None:
    job = jobs["raise"]
    assert job.verdict["cause"] == "rank-exception"
    assert job.verdict["culprits"]["ranks"] == [2]
    assert "ValueError: a bad sample" in (job.out / "bundle/logs/rank_2.error.txt").read_text()


def test_a_healthy_job_is_left_alone(jobs: Mapping[str, Done]) -> None:
    job = jobs["none"]
    assert job.code == 0, job.stderr
    lines = sorted(job.stdout.splitlines())
    assert lines == sorted(told for r in range(2) for told in (f"rank {r} done", f"the site of rank {r}"))
    assert job.stderr == ""
    assert job.document("run.json")["alarms"] == []
    assert not (job.out / "bundle").exists()


@pytest.mark.bars
def test_checkpoints_and_evaluations_are_no_hangs(jobs: Mapping[str, Done]) -> None:
    job = jobs["pauses"]
    assert job.code == 0, job.stderr
    assert job.document("run.json")["alarms"] == []
    assert job.stderr == ""


@pytest.mark.bars
def test_what_one_rank_does_alone_ends_no_job(jobs: Mapping[str, Done]) -> None:
    """Only the long sleep at the end may be reported; the report is withdrawn, and --policy end waits longer."""
    job = jobs["alone"]
    assert job.code == 0, job.stderr
    assert all("withdrawn" in alarm for alarm in job.document("run.json")["alarms"])
    reported = [alarm for alarm in job.document("run.json")["alarms"] if alarm["level"] == "confirmed"]
    assert len(reported) <= 1, reported


def test_its_code_is_passed_on(tmp_path: Path) -> None:
    done = watched.run([sys.executable, "-c", "import sys; print('out'); sys.exit(3)"], tmp_path)
    assert (done.code, done.stdout, done.stderr) == (3, "out\n", "")


@pytest.mark.bars
def test_a_job_that_fails_after_its_group_has_gone(jobs: Mapping[str, Done]) -> None:
    job = jobs["three"]
    assert job.code == 1, "torchrun's own code for failed ranks"
    assert sum(line.endswith("done") for line in job.stdout.splitlines()) >= 1
    assert {row["exit_code"] for row in job.document("bundle/last_words.json")["processes"]} & {3}


def test_no_private_folder(tmp_path: Path) -> None:
    done = watched.run([sys.executable, "-c", "print('out')"], tmp_path / "out", TMPDIR=str(tmp_path / "none"))
    assert (done.code, done.stdout) == (0, "out\n")


def test_a_private_folder_that_goes_away(tmp_path: Path) -> None:
    code = (
        "import os, shutil, sys\n"
        "shutil.rmtree(os.environ['WHICHRANK_PRIVATE'])\n"
        "import torch, subprocess\n"
        "subprocess.run([sys.executable, '-c', 'print(1 + 1)'], check=True)\n"
        "if os.fork() == 0: print('child', flush=True); os._exit(0)\n"
        "os.wait()\n"
        "print('done')\n"
    )
    done = watched.run([sys.executable, "-c", code], tmp_path)
    assert done.code == 0, done.stderr
    assert sorted(done.stdout.split()) == ["2", "child", "done"]
    assert "Traceback" not in done.stderr


def test_signals_reach_the_job(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('usr1', flush=True))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.1)\n"
    )
    command = watched.whichrank("run", "--out", tmp_path, "--", sys.executable, "-c", code)
    job = subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=watched.environment())
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    job.send_signal(signal.SIGUSR1)
    assert job.stdout.readline() == "usr1\n"
    job.send_signal(signal.SIGTERM)
    assert job.wait(120) == 7


def test_a_job_that_dies_by_a_signal(tmp_path: Path) -> None:
    done = watched.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"], tmp_path)
    assert done.code == -signal.SIGTERM


def test_a_watcher_that_is_killed_takes_nobody_along(tmp_path: Path) -> None:
    marker = tmp_path / "done"
    code = f"import time, torch; print('ready', flush=True); time.sleep(3); open({str(marker)!r}, 'w').write('x')"
    command = watched.whichrank("run", "--out", tmp_path / "out", "--", sys.executable, "-c", code)
    job = subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=watched.environment())
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    job.kill()
    job.wait(120)
    deadline = time.monotonic() + 30
    while not marker.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert marker.exists()


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    done = watched.run(["no-such-program"], tmp_path)
    assert done.code == 2
    assert "can't start" in done.stderr
