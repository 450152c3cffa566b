"""The folder of a run's results: nobody else's, and of one run alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.run import watched
from whichrank.flows.history import store as history_store
from whichrank.model.errors import UsageError
from whichrank.run.resume.requeue import same_job
from whichrank.run.resume.slurm import Slurm
from whichrank.run.watch import private, results_folder

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
WELL = [sys.executable, "-c", "print('well')"]


def run(*words: object, **environ: str) -> subprocess.CompletedProcess[str]:
    line = watched.whichrank("run", "--no-history", *words)
    return subprocess.run(line, capture_output=True, text=True, env=watched.environment(**environ), check=False)


def test_the_default_folder_is_private_and_named(tmp_path: Path) -> None:
    look = f"import os; print([oct(os.stat(p).st_mode) for p in __import__('glob').glob('{tmp_path}/whichrank-run-*')])"
    done = run("--", sys.executable, "-c", look, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    (named,) = re.findall(r"the results go to (\S+)", done.stderr)
    assert Path(named).parent == tmp_path
    assert not re.search(r"-\d+$", named), "a name that can be guessed can be taken before"
    assert done.stdout == "['0o40700']\n"
    assert not list(tmp_path.iterdir()), "nothing of interest, nothing left"


def test_links_in_the_folder_are_never_followed(tmp_path: Path) -> None:
    """What anybody may have put into a folder that others can write to."""
    out, precious = tmp_path / "out", tmp_path / "precious"
    out.mkdir()
    precious.write_text("untouched")
    for name in (".run.json", "history.jsonl", ".verdict.json", ".report.md", "run.json"):
        (out / name).symlink_to(precious)
    done = run("--out", out, "--", sys.executable, "-c", "import time; time.sleep(1.5)")
    assert done.returncode == 0, done.stderr
    assert precious.read_text() == "untouched"
    assert json.loads((out / "run.json").read_text())["state"] == "ended"
    assert (out / "run.json").stat().st_mode & 0o777 == 0o600
    assert not (out / "run.json").is_symlink()


def test_a_link_of_ones_own_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    assert run("--out", tmp_path / "out", "--", *WELL).returncode == 0
    assert (tmp_path / "elsewhere" / "run.json").exists()


@ROOT_ONLY
def test_a_link_of_somebody_else_instead_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    os.lchown(tmp_path / "out", 12345, 12345)
    done = run("--out", tmp_path / "out", "--", *WELL)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a folder" in done.stderr


@ROOT_ONLY
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    os.chown(out, 12345, 12345)
    done = run("--out", out, "--", *WELL)
    assert (done.returncode, done.stdout) == (2, ""), "the job is not even started"
    assert "belongs to another user" in done.stderr


@ROOT_ONLY
def test_a_history_of_another_user_or_behind_a_link_is_not_written(tmp_path: Path) -> None:
    entry = history_store.Entry("1", 1.0, "job", "hang", "straggler", 0.5, "", "")
    theirs, link = tmp_path / "theirs.db", tmp_path / "link.db"
    theirs.touch()
    os.chown(theirs, 12345, 12345)
    link.symlink_to(tmp_path / "target.db")
    for file in (theirs, link):
        with pytest.raises(history_store.HistoryError):
            history_store.add(file, entry)
    assert theirs.stat().st_size == 0
    assert not (tmp_path / "target.db").exists()


def test_the_second_run_does_not_mix_with_the_first(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("--out", out, "--", sys.executable, "-c", "print('first')").returncode == 0
    first = json.loads((out / "run.json").read_text())
    (out / "bundle").mkdir()
    (out / "bundle" / "stacks.txt").write_text("of the first")
    (out / "notes.txt").write_text("the user's own")
    done = run("--out", out, "--", *WELL)
    (moved,) = tmp_path.glob("out.*")
    assert str(moved) in done.stderr
    assert (moved / "bundle" / "stacks.txt").read_text() == "of the first"
    assert json.loads((moved / "run.json").read_text())["pid"] == first["pid"]
    assert not (out / "bundle").exists()
    assert (out / "notes.txt").exists(), "what is not a run's own stays"
    assert run("--out", out, "--", *WELL).returncode == 0
    assert len(list(tmp_path.glob("out.*"))) == 2


def test_two_runs_at_a_time_do_not_share_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = watched.whichrank("run", "--no-history", "--out", out, "--", "sleep", "60")
    first = subprocess.Popen(line, env=watched.environment())
    try:
        deadline = time.monotonic() + 20
        while not (out / "run.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        done = run("--out", out, "--", *WELL)
        assert done.returncode == 2
        assert f"another run writes to {out} (process {first.pid})" in done.stderr
    finally:
        first.send_signal(signal.SIGTERM)
        first.wait(120)


def test_a_job_that_is_queued_again_goes_on_in_its_folder() -> None:
    before = {"scheduler": Slurm("17", restarts=0).told()}
    assert same_job(Slurm("17", restarts=1), before)
    assert not same_job(Slurm("18", restarts=1), before), "another job"
    assert not same_job(Slurm("17", restarts=0), before), "another command of the same start"
    assert not same_job(None, before)
    assert not same_job(Slurm("17", restarts=1), {"scheduler": Slurm("17", restarts=1).told()})


def test_where_nothing_can_be_put_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mounted volume: its parent is another file system, or read-only."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "run.json").write_text("{}")
    real = Path.mkdir

    def mkdir(self: Path, *arguments: object, **more: object) -> None:
        if self.parent == tmp_path and self.name.startswith("out."):
            raise PermissionError(13, "Permission denied")
        real(self, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", mkdir)
    results_folder.open_folder(out, lambda _: None)
    assert not (out / "run.json").exists()
    assert len(list((out / "earlier").glob("*/run.json"))) == 1


def test_the_private_folder_stays_while_a_process_of_the_job_lives(tmp_path: Path) -> None:
    """Its hook is on the path of that process: with the folder gone, anybody could put another hook there."""
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '30'], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)\n"
        "print(child.pid)\n"
    )
    done = run("--out", tmp_path / "out", "--", sys.executable, "-c", code, TMPDIR=str(tmp_path))
    pid = int(done.stdout)
    try:
        (folder,) = tmp_path.glob("whichrank-*")
        assert (folder / "hook").is_dir()
    finally:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while private.in_use(folder):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    run("--out", tmp_path / "next", "--", *WELL, TMPDIR=str(tmp_path))
    assert not list(tmp_path.glob("whichrank-*")), "the next run sweeps"


def test_a_command_that_is_not_there_leaves_no_folder(tmp_path: Path) -> None:
    done = run("--", "/nonexistent", TMPDIR=str(tmp_path))
    assert done.returncode == 2
    assert not list(tmp_path.iterdir())


def test_secrets_of_the_watcher_do_not_reach_the_job(tmp_path: Path) -> None:
    code = "import os; print([n for n in os.environ if n in ('WHICHRANK_TOKEN', 'WHICHRANK_WEBHOOK')])"
    secrets = {"WHICHRANK_TOKEN": "open-sesame", "WHICHRANK_WEBHOOK": "http://127.0.0.1:9/secret"}
    done = run("--out", tmp_path / "out", "--", sys.executable, "-c", code, **secrets)
    assert done.stdout == "[]\n", done.stderr
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            assert b"open-sesame" not in path.read_bytes()
            assert b"9/secret" not in path.read_bytes()


def test_settings_change_nothing_of_the_communication_unless_asked(tmp_path: Path) -> None:
    code = "import os; print(sorted(n for n in os.environ if 'IFNAME' in n or n == 'FI_PROVIDER'))"
    done = run("--out", tmp_path / "out", "--verbose", "--", sys.executable, "-c", code)
    assert done.stdout == "[]\n"
    listed = dict(re.findall(r"whichrank: sets (\w+)=(.*)", done.stderr))
    assert listed["TORCH_FR_BUFFER_SIZE"] == "2000"
    assert "WHICHRANK_PRIVATE" in listed
    assert json.loads((tmp_path / "out" / "run.json").read_text())["settings"] == listed
    asked = run("--out", tmp_path / "asked", "--network-settings", "--for", "debug", "--", sys.executable, "-c", code)
    assert asked.stdout in ("[]\n", "['NCCL_SOCKET_IFNAME']\n", "['FI_PROVIDER', 'NCCL_SOCKET_IFNAME']\n")


def test_a_private_folder_of_somebody_else_is_not_swept(tmp_path: Path) -> None:
    assert private.results_of(tmp_path) is None
    private.note_results(tmp_path, tmp_path / "out")
    assert private.results_of(tmp_path) == tmp_path / "out"


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(UsageError, match="is not a folder"):
        results_folder.open_folder(tmp_path / "out", lambda _: None)
