"""Jobs of two ranks on Gloo that fail and come back: by a new launch, and by torch's own elastic agent."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from tests.run import watched
from tests.run.watched import Done
from tests.together import Together

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.slow,
]
SCHEMA = json.loads((files("whichrank.report") / "schemas/run.schema.json").read_text())
SCRIPT = watched.HERE / "resumable.py"
CASES = {
    "none": [],
    "once-raise": ["--restart", "3"],
    "once-torn": ["--restart", "3"],
    "always-raise": ["--restart", "5"],
    "always-kill": ["--restart", "5"],
    "once-hang": ["--restart", "2", "--policy", "end"],
}


def launcher(folder: Path, how: str, *options: str) -> list[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", *options]
    if not any("rdzv" in option for option in options):
        command += ["--master_port", str(watched.free_port())]
    return [*command, str(SCRIPT), str(folder), how]


def rendezvous(backend: str, endpoint: str = "", restarts: int = 2) -> tuple[str, ...]:
    endpoint = endpoint or f"127.0.0.1:{watched.free_port()}"
    return ("--nnodes", "1", "--rdzv-backend", backend, "--rdzv-endpoint", endpoint, "--rdzv-id", "resumable",
            "--max-restarts", str(restarts))  # fmt: skip


def start(folder: Path, how: str, *options: str, agent: tuple[str, ...] = (), by: str = "--resume-env") -> Done:
    folder.mkdir(parents=True)
    handed = ["--resume-env", "RESUME_FROM"] if by == "--resume-env" else ["--resume-arg", "--resume {path}"]
    asked = ["--checkpoints", str(folder / "checkpoints"), *handed, "--no-history", *options]
    forked = watched.forked(SCRIPT, folder, how, world=2)
    return watched.run(launcher(folder, how, *agent) if agent else forked, folder / "out", *asked, limit_s=240)


@pytest.fixture(scope="module")
def jobs(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Done]]:
    begun = Together(lambda how, folder: start(folder / how, how, *CASES[how]), CASES, 2, request)
    yield begun
    begun.close()


def weights(job: Done) -> str:
    found = re.search(r"^weights ([0-9a-f]+)$", job.stdout, re.MULTILINE)
    assert found is not None, job.stderr
    return found[1]


def begins(job: Done) -> list[int]:
    """The steps at which the attempts began, as rank 0 says."""
    return [int(step) for step in re.findall(r"rank 0 begins at (\d+)", job.stdout)]


def told(job: Done) -> dict:
    document = job.document("run.json")
    jsonschema.validate(document, SCHEMA)
    return document["restart"]


@pytest.mark.bars
def test_undisturbed(jobs: Mapping[str, Done]) -> None:
    job = jobs["none"]
    assert (job.code, begins(job), len(told(job)["attempts"])) == (0, [0], 1)
    assert told(job)["stopped"] is None


def test_a_crash_comes_back_with_the_same_result(jobs: Mapping[str, Done]) -> None:
    job = jobs["once-raise"]
    assert job.code == 0, job.stderr
    assert begins(job) == [0, 6], "from the checkpoint of step 5"
    assert weights(job) == weights(jobs["none"]), "bit for bit"
    first, second = told(job)["attempts"]
    assert (first["cause"], first["culprit_ranks"], first["exit_code"]) == ("rank-exception", [1], 1)
    assert first["checkpoint"] is None
    assert Path(second["checkpoint"]).name == "step-000000000005"
    assert first["started"] < first["ended"] <= second["started"]
    assert (job.out / "attempts/0/verdict.json").exists()
    assert not (job.out / "verdict.json").exists(), "the last attempt had nothing to judge"
    assert "once more in" in job.stderr


@pytest.mark.bars
def test_a_half_written_checkpoint_is_skipped_and_named(jobs: Mapping[str, Done]) -> None:
    job = jobs["once-torn"]
    assert job.code == 0, job.stderr
    assert begins(job) == [0, 6]
    assert weights(job) == weights(jobs["none"])
    skipped = told(job)["attempts"][1]["skipped_checkpoints"]
    assert [Path(each["path"]).name for each in skipped] == ["step-000000000006"]
    assert "instead of 5000" in skipped[0]["why"]
    assert "step-000000000006: rank-00000.pt has 8 bytes instead of 5000" in job.stderr


@pytest.mark.parametrize("how", ["always-raise", "always-kill"])
@pytest.mark.bars
def test_a_loop_that_leads_nowhere_stops(jobs: Mapping[str, Done], how: str) -> None:
    job = jobs[how]
    assert job.code == 1
    assert begins(job) == [0, 6]
    assert len(told(job)["attempts"]) == 2
    assert "failed twice in the same way" in told(job)["stopped"]
    assert "no checkpoint newer than step-000000000005" in job.stderr
    assert job.verdict["culprits"]["ranks"] == [1]
    assert [alarm["level"] for alarm in job.document("run.json")["alarms"]].count("gave up") == 1


def test_a_hang_is_ended_and_comes_back(jobs: Mapping[str, Done]) -> None:
    job = jobs["once-hang"]
    assert job.code == 0, job.stderr
    assert begins(job) == [0, 6]
    assert weights(job) == weights(jobs["none"])
    assert told(job)["attempts"][0]["culprit_ranks"] == [1]
    assert job.document("attempts/0/verdict.json")["verdict"]["category"] == "hang"


@pytest.mark.parametrize(("by", "backend"), [("--resume-env", "c10d"), ("--resume-arg", "static")])
@pytest.mark.bars
def test_the_agents_own_restarts_get_the_newest_checkpoint(
    tmp_path: Path, jobs: Mapping[str, Done], by: str, backend: str
) -> None:
    agent = rendezvous("c10d") if backend == "c10d" else ("--max-restarts", "2")
    job = start(tmp_path / "job", "once-raise", "--restart", "1", agent=agent, by=by)
    assert job.code == 0, job.stderr
    assert begins(job) == [0, 6]
    assert weights(job) == weights(jobs["none"])
    first, second = told(job)["attempts"]
    assert (first["cause"], Path(second["checkpoint"]).name) == ("rank-exception", "step-000000000005")
    assert (job.out / "attempts/0/verdict.json").exists()
    assert "once more in" not in job.stderr, "the agent did it"


@pytest.mark.bars
def test_the_agents_own_loop_is_ended_too(tmp_path: Path) -> None:
    job = start(tmp_path / "job", "always-raise", "--restart", "9", agent=rendezvous("c10d", restarts=9))
    assert job.code != 0
    assert "failed twice in the same way" in told(job)["stopped"]
    assert len(told(job)["attempts"]) == 2
    assert begins(job)[:2] == [0, 6]
    assert len(begins(job)) <= 3


@pytest.mark.bars
def test_a_budget_stops(tmp_path: Path) -> None:
    job = start(tmp_path / "job", "once-kill", "--restart", "3", "--gpu-hours", "0.0001")
    assert job.code == 1
    assert begins(job) == [0]
    assert "GPU-hours are used of the 0.0001" in told(job)["stopped"]


@pytest.mark.parametrize("target", ["whichrank", "launcher"])
@pytest.mark.bars
def test_who_ends_it_does_not_get_it_back(tmp_path: Path, target: str) -> None:
    out = tmp_path / "out"
    command = watched.whichrank("run", "--out", out, "--no-history", "--restart", 3, "--",
                                *launcher(tmp_path, "once-hang"))  # fmt: skip
    job = subprocess.Popen(command, env=watched.environment(), stdout=-1, stderr=-1, text=True)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "struck").exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        document = Done(0, "", "", out, 0).document("run.json")
        subprocess.run(["kill", "-TERM", str(job.pid if target == "whichrank" else document["pid"])], check=True)
        stdout, stderr = job.communicate(timeout=60)
    finally:
        job.kill()
    assert job.returncode != 0
    assert stdout.count("rank 0 begins") == 1
    run = Done(job.returncode, stdout, stderr, out, 0).document("run.json")
    assert run["restart"]["stopped"] == "it was ended from outside"
    assert run["state"] == "ended"


def test_a_signal_in_the_pause_ends_it(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("import sys; sys.stdout.write('x'); sys.exit(3)")
    command = watched.whichrank("run", "--out", tmp_path / "out", "--no-history", "--restart", 50, "--",
                                sys.executable, script)  # fmt: skip
    job = subprocess.Popen(command, env=watched.environment(), stdout=-1, stderr=subprocess.PIPE, text=True)
    assert job.stderr is not None
    while "once more in" not in job.stderr.readline():
        assert job.poll() is None
    job.send_signal(signal.SIGTERM)
    stdout, _ = job.communicate(timeout=120)
    assert (job.returncode, stdout) == (3, "x")


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[str]:
    program = shutil.which("etcd")
    if program is None:
        pytest.skip("etcd is not installed (Debian: etcd-server)")
    if importlib.util.find_spec("etcd") is None:
        pytest.skip("the Python package python-etcd is not installed")
    client, peer = (f"http://127.0.0.1:{watched.free_port()}" for _ in range(2))
    options = {
        "data-dir": tmp_path / "etcd", "listen-client-urls": client, "advertise-client-urls": client,
        "listen-peer-urls": peer, "initial-advertise-peer-urls": peer, "initial-cluster": f"default={peer}",
        "enable-v2": "true", "logger": "zap", "log-outputs": tmp_path / "etcd.log",
    }  # fmt: skip
    server = subprocess.Popen([program, *(f"--{name}={value}" for name, value in options.items())])
    try:
        from urllib.error import URLError
        from urllib.request import urlopen

        for _ in range(100):
            try:
                urlopen(f"{client}/health", timeout=1).close()
                break
            except (URLError, OSError):
                time.sleep(0.1)
        yield client.removeprefix("http://")
    finally:
        server.terminate()
        server.wait(10)


@pytest.mark.bars
def test_through_an_etcd_rendezvous(tmp_path: Path, jobs: Mapping[str, Done], etcd: str) -> None:
    job = start(tmp_path / "job", "once-kill", "--restart", "1", agent=rendezvous("etcd-v2", etcd))
    assert job.code == 0, job.stderr
    assert begins(job) == [0, 6]
    assert weights(job) == weights(jobs["none"])
