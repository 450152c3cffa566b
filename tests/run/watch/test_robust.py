"""What may go wrong around a watched job: the training goes on unharmed, and the user is told."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run import small, watched
from whichrank.run.watch import private

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.slow,
]
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk or become another user")


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    yield
    small.end_all()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "whichrank-test", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can't be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path, leave: int = 0) -> None:
    free = shutil.disk_usage(disk).free
    with (disk / "filler").open("wb") as stream:
        stream.write(b"x" * max(0, free - leave))


def folder_of(job: small.Small) -> Path:
    return Path(json.loads((job.out / "run.json").read_text())["private"])


def test_a_killed_watcher_and_what_it_leaves(tmp_path: Path) -> None:
    job = small.start(tmp_path, "--quiet")
    job.until_ready()
    left = folder_of(job)
    assert left.stat().st_mode & 0o777 == 0o700
    job.process.kill()
    job.process.wait(120)
    private.sweep()
    assert left.is_dir(), "its job lives"
    (job.folder / "end").touch()
    job.until("the job ends well", lambda: job.unharmed)
    job.until("nobody is left", lambda: not private.in_use(left))
    assert left.is_dir(), "nobody has cleaned up yet"
    done = watched.run([sys.executable, "-c", "print(1)"], tmp_path / "next", "--no-history")
    assert done.code == 0
    assert not left.exists(), "the next run cleans up behind it"


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_another_container_with_the_same_tmp_cleans_up_its_own_only() -> None:
    folder = private.make()
    try:
        sweep = [sys.executable, "-c", "from whichrank.run.watch import private; private.sweep()"]
        subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", *sweep], check=True, env=watched.environment())
        assert folder.is_dir(), "its owner lives, though it can't be seen from there"
    finally:
        private.remove(folder)


def test_a_watcher_that_is_killed_while_it_pauses_the_launcher(tmp_path: Path) -> None:
    """The launcher is stopped for a moment while the others are asked; it must not stay stopped."""
    sleeper = subprocess.Popen(["sleep", "60"])
    code = (
        "import os, sys\n"
        "from whichrank.model.last_words import Words\n"
        "from whichrank.run.watch import launcher_pause\n"
        "from whichrank.worker.lastwords import start_ticks\n"
        f"pid = {sleeper.pid}\n"
        "with launcher_pause.paused([Words(pid=pid, start_ticks=start_ticks(pid))]):\n"
        "    print('paused', flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    try:
        watcher = subprocess.run(
            [sys.executable, "-c", code], stdout=-1, text=True, env=watched.environment(), check=False
        )
        assert (watcher.returncode, watcher.stdout) == (-signal.SIGKILL, "paused\n")
        deadline = time.monotonic() + 10
        while state(sleeper.pid) == "T":
            assert time.monotonic() < deadline, "it stays stopped"
            time.sleep(0.05)
    finally:
        sleeper.kill()
        sleeper.wait()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@ROOT_ONLY
def test_no_room_for_results(small_disk: Path, tmp_path: Path) -> None:
    """The disk of --out is full when a hang comes: the evidence goes elsewhere, and the verdict is told."""
    out = small_disk / "out"
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    line = watched.whichrank("run", "--no-history", "--out", out, "--", *small.forked(tmp_path))
    with (tmp_path / "stderr").open("w") as errors:
        process = subprocess.Popen(
            line, stdout=-3, stderr=errors, text=True, env=watched.environment(TMPDIR=str(temporary))
        )
    job = small.Small(process, tmp_path, out)
    told = (tmp_path / "stderr").read_text
    try:
        job.until_ready()
        fill(small_disk)
        job.pause()
        job.until("the user is told where", lambda: "the evidence goes to" in told())
        job.until("the verdict is told", lambda: "Rank 1" in told())
        assert process.poll() is None
    finally:
        code = job.end()
    assert code == 0, told()
    assert job.unharmed
    (other,) = temporary.glob("whichrank-evidence-*")
    found = other / "resumed" / "1"
    assert json.loads((found / "verdict.json").read_text())["verdict"]["culprits"]["ranks"] == [1]
    assert (found / "bundle" / "dumps" / "rank_0").exists()


@pytest.mark.bars
def test_files_may_not_grow(tmp_path: Path) -> None:
    """Every write fails beyond a few kilobytes, in the watcher as in the job."""
    code = (
        "import resource, subprocess, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))\n"
        "sys.exit(subprocess.run(sys.argv[1:]).returncode)\n"
    )
    line = watched.whichrank("run", "--no-history", "--out", tmp_path / "out", "--", *small.torchrun(tmp_path))
    with (tmp_path / "stderr").open("w") as errors:
        # Compiled modules would be cut off in the middle and spoil what comes after.
        process = subprocess.Popen([sys.executable, "-c", code, *line], stdout=-3, stderr=errors, text=True,
                                   env=watched.environment(PYTHONDONTWRITEBYTECODE="1"))  # fmt: skip
    job = small.Small(process, tmp_path, tmp_path / "out")
    job.until_ready()
    assert job.end() == 0, (tmp_path / "stderr").read_text()
    assert job.unharmed
    assert "whichrank: there is no place for a private folder" in (tmp_path / "stderr").read_text()


@ROOT_ONLY
@pytest.mark.parametrize("full", ["before", "after"])
@pytest.mark.bars
def test_no_room_for_the_private_folder(small_disk: Path, tmp_path: Path, full: str) -> None:
    if full == "before":
        fill(small_disk, leave=500_000)
    job = small.start(tmp_path, TMPDIR=str(small_disk))
    told = (tmp_path / "stderr").read_text
    job.until_ready()
    if full == "after":
        fill(small_disk)
        job.pause()  # what the ranks would answer finds no room; they go on
        job.until("the hang is noticed", lambda: "makes no progress" in told())
        job.until("the verdict is told", (job.out / "verdict.json").exists)
    assert job.end() == 0
    assert job.unharmed
    if full == "before":
        assert "there is no place for a private folder" in told()
    else:
        assert "stopped watching" not in told()
        assert "does not run" not in told(), "a rank that can't write has no held interpreter"


@pytest.mark.bars
def test_no_permission_to_look_into_the_ranks(tmp_path: Path) -> None:
    """Ranks that forbid to be traced, and no right to do so all the same: py-spy can't read them."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root may look into everything, and there is no setpriv to give that up")
    powerless = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-all", "--"] if os.geteuid() == 0 else []
    shy = tmp_path / "shy.py"
    shy.write_text(
        "import ctypes, runpy\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
        f"runpy.run_path({str(small.JOB)!r}, run_name='__main__')\n"
    )
    out, stderr = tmp_path / "out", tmp_path / "stderr"
    line = watched.whichrank("run", "--no-history", "--out", out, "--", *small.torchrun(tmp_path, script=shy))
    with stderr.open("w") as errors:
        process = subprocess.Popen([*powerless, *line], stdout=-3, stderr=errors, text=True, env=watched.environment())
    job = small.Small(process, tmp_path, out)
    try:
        job.until_ready()
        # PTRACE_SEIZE, which stops nobody.
        seize = f"import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(0x4206, {job.pid(1)}, 0, 0) == 0)"
        peek = [*powerless, sys.executable, "-c", seize]
        assert subprocess.run(peek, check=False).returncode == 0, "nothing was given up"
        job.pause()
        job.until("there is a verdict", (out / "verdict.json").exists)
    finally:
        code = job.end()
    assert code == 0, stderr.read_text()
    assert job.unharmed
    assert json.loads((out / "resumed" / "1" / "verdict.json").read_text())["verdict"]["culprits"]["ranks"] == [1]


def test_a_command_that_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    done = watched.run(["no-such-program"], tmp_path / "out", TMPDIR=str(tmp_path))
    assert done.code == 2
    assert not list(tmp_path.glob("whichrank-*"))


@pytest.mark.bars
def test_a_script_that_replaces_the_hook_for_exceptions(tmp_path: Path) -> None:
    code = (
        "import sys, torch\n"
        "sys.excepthook = lambda *_: sys.stdout.write('my own hook\\n')\n"
        "raise ValueError('on purpose')\n"
    )
    done = watched.run([sys.executable, "-c", code], tmp_path, "--no-history", RANK="0", WORLD_SIZE="1")
    assert (done.code, done.stdout) == (1, "my own hook\n")
    assert "ValueError: on purpose" in (tmp_path / "bundle" / "logs" / "rank_0.error.txt").read_text()


DAEMONS = """
import os, subprocess, sys, time
if len(sys.argv) > 2:
    time.sleep(120)
import torch, torch.distributed as dist

def detach():
    name = f"{sys.executable} {__file__} {sys.argv[1]} child"
    code = f"{name} > /dev/null 2>&1 < /dev/null & echo $! >> {sys.argv[1]}/children"
    subprocess.run(["setsid", "sh", "-c", code], check=True)

# By a shell before and after the rank joins, and by a fork of a fork: none of them is a rank.
detach()
time.sleep(1)
dist.init_process_group("gloo")
detach()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(f"{sys.argv[1]}/children", "a") as stream:
            print(os.getpid(), file=stream)
        for n in (0, 1, 2):
            os.close(n)
        time.sleep(120)
    os._exit(0)
for _ in range(8):
    dist.all_reduce(torch.ones(1))
    time.sleep(0.5)
dist.destroy_process_group()
"""


def test_what_a_rank_has_detached_is_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "daemons.py"
    script.write_text(DAEMONS)
    done = watched.run(small.forked(tmp_path, script=script), tmp_path / "out", "--no-history", "--policy", "end")
    children = [int(line) for line in (tmp_path / "children").read_text().split()]
    try:
        assert done.code == 0, done.stderr
        assert len(children) == 6
        state = done.document("run.json")
        assert (state["ranks_seen"], state["alarms"]) == ([0, 1], [])
        assert "still run" not in done.stderr
        assert "ending what it left" not in done.stderr
        assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == children, "they are nobody's business"
    finally:
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


FORKING = """
import os, time, torch, torch.distributed as dist
from torch.utils.data import DataLoader
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
children = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    children.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
total = sum(int(batch.sum()) for batch in DataLoader(range(100), batch_size=10, num_workers=2))
dist.all_reduce(torch.ones(1))
time.sleep(2)  # the hook looks twice a second
dist.destroy_process_group()
print(children, total)
"""


def test_a_script_that_forks(tmp_path: Path) -> None:
    done = watched.run([sys.executable, "-c", FORKING], tmp_path, "--no-history")
    assert (done.code, done.stdout) == (0, "[7, 7] 4950\n"), done.stderr
    assert done.document("run.json")["alarms"] == [], "children that end as they please are no lost ranks"
    assert done.document("run.json")["ranks_seen"] == [0]


SPAWNING = """
import sys, time, torch, torch.distributed as dist, torch.multiprocessing as mp
def work(rank, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    for _ in range(20):
        dist.all_reduce(torch.ones(1))
        time.sleep(0.1)
    dist.barrier()
    if len(sys.argv) > 2 and rank == 1:
        raise ValueError("on purpose")
    dist.barrier()
    dist.destroy_process_group()
if __name__ == "__main__":
    started = mp.spawn(work, (int(sys.argv[1]),), nprocs=2, join=False)
    while len(sys.argv) > 2 and any(process.is_alive() for process in started.processes):
        time.sleep(0.1)  # who looks late shows the exception of the first rank, which is a victim
    while not started.join():
        pass
    print("all done")
"""


@pytest.mark.parametrize("fails", [pytest.param(False, marks=pytest.mark.bars), True])
def test_a_script_that_spawns_its_ranks(tmp_path: Path, fails: bool) -> None:
    script = tmp_path / "spawning.py"
    script.write_text(SPAWNING)
    command = [sys.executable, str(script), str(watched.free_port()), *(["fail"] if fails else [])]
    done = watched.run(command, tmp_path / "out", "--no-history")
    assert done.document("run.json")["ranks_seen"] == [0, 1]
    if not fails:
        assert (done.code, done.stdout) == (0, "all done\n"), done.stderr
        return
    assert done.code == 1
    assert "Process 0 terminated" in done.stderr
    assert (done.verdict["cause"], done.verdict["culprits"]["ranks"]) == ("rank-exception", [1]), done.verdict
    assert "ValueError: on purpose" in (done.out / "bundle/logs/rank_1.error.txt").read_text()


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed")
@pytest.mark.bars
def test_under_accelerate(tmp_path: Path) -> None:
    # Without GPUs either: it is torchrun that it starts then, with --cpu one process alone.
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    launcher += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    launcher += ["--main_process_port", str(watched.free_port())]
    job = small.start(tmp_path, command=[*launcher, str(small.JOB), str(tmp_path)])
    job.until_ready()
    job.until("both are seen", lambda: json.loads((job.out / "run.json").read_text())["state"] == "running")
    assert job.end() == 0, (tmp_path / "stderr").read_text()
    assert job.unharmed
    assert json.loads((job.out / "run.json").read_text())["ranks_seen"] == [0, 1]


@pytest.mark.parametrize("launcher", ["forked", pytest.param("torchrun", marks=pytest.mark.bars)])
def test_an_attempt_that_failed_is_kept(tmp_path: Path, launcher: str) -> None:
    script = tmp_path / "second_time_lucky.py"
    # The agent keeps its store for all attempts, and Gloo would find the addresses of the first one in it.
    script.write_text(
        "import os, pathlib, time, torch, torch.distributed as dist\n"
        "attempt, rank = os.environ['TORCHELASTIC_RESTART_COUNT'], int(os.environ['RANK'])\n"
        f"out = pathlib.Path({str(tmp_path / 'out')!r})\n"
        f"meet = 'file://{tmp_path}/meet.' + attempt\n"
        "dist.init_process_group('gloo', init_method=meet, rank=rank, world_size=2)\n"
        "dist.all_reduce(torch.ones(1))\n"
        # Each attempt goes on until the watcher has seen it, and the one before it.
        "seen = out / ('attempts/0/verdict.json' if attempt == '1' else 'history.jsonl')\n"
        "until = time.monotonic() + 100\n"
        "while time.monotonic() < until and not (seen.exists() and 'joined' in (out / 'history.jsonl').read_text()):\n"
        "    time.sleep(0.1)\n"
        "for number in range(30):\n"
        "    dist.all_reduce(torch.ones(1))\n"
        "    if number == 20 and attempt == '0' and rank == 1:\n"
        "        raise ValueError('the first time only')\n"
        "dist.destroy_process_group()\n"
    )
    command = (
        watched.forked(script, world=2, options=("--max-restarts", "1"))
        if launcher == "forked"
        else small.torchrun(tmp_path, "--max-restarts", "1", script=script)
    )
    done = watched.run(command, tmp_path / "out", "--no-history")
    assert done.code == 0, done.stderr
    state = done.document("run.json")
    assert (state["attempts"], state["attempt"]) == (2, 1)
    (earlier,) = state["earlier_attempts"]
    assert (earlier["attempt"], earlier["cause"], earlier["culprit_ranks"]) == (0, "rank-exception", [1])
    kept = done.out / earlier["results"]
    assert "ValueError: the first time only" in (kept / "bundle" / "logs" / "rank_1.error.txt").read_text()
    assert (kept / "bundle" / "dumps" / "rank_0").exists()
    assert not (done.out / "verdict.json").exists(), "the job itself ended well"
