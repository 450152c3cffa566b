"""Nothing of a drill stays, however it ends."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from whichrank.evidence.collectors import processes
from whichrank.lab import place
from whichrank.lab.workloads.plan import FOLDER

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def alive(pid: int) -> bool:
    row = processes.stat(pid)
    return row is not None and row.state not in "ZX"


def await_true(question, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not question() and time.monotonic() < deadline:
        time.sleep(0.05)
    return question()


def test_tidy_ends_what_carries_the_folder_and_nothing_else():
    folder = place.make()
    mine = subprocess.Popen(SLEEPER, env={**os.environ, FOLDER: str(folder)}, start_new_session=True)
    other = subprocess.Popen(SLEEPER, env={**os.environ, FOLDER: str(folder) + "x"})
    left = Path(f"/dev/shm/torch_{mine.pid}_123")
    left.write_bytes(b"x")
    try:
        place.tidy(folder)
        assert mine.wait(10) == -signal.SIGKILL
        assert not folder.exists()
        assert not left.exists()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
        left.unlink(missing_ok=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_mounts_and_namespaces_go_too():
    folder = place.make()
    (folder / "mnt").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", str(folder / "mnt")], check=True)
    subprocess.run(["ip", "netns", "add", f"wr{place.name_of(folder)}1"], check=True)
    place.tidy(folder)
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
    assert not list(Path("/run/netns").glob(f"*{place.name_of(folder)}*"))
    assert not folder.exists()


OWNER = """
import os, subprocess, sys, time
from whichrank.lab import place
from whichrank.lab.workloads.plan import FOLDER
place.guardian()
folder = place.make()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         env={**os.environ, FOLDER: str(folder)}, start_new_session=True)
print(folder, child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_guardian_cleans_up_after_a_drill_that_was_ended(number):
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    folder, child = owner.stdout.readline().split()
    assert alive(int(child))
    owner.send_signal(number)
    owner.wait()
    owner.stdout.close()
    assert await_true(lambda: not alive(int(child)) and not Path(folder).exists())


def test_a_folder_of_a_living_drill_is_left_alone():
    folder = place.make()
    try:
        assert folder not in place.sweep()
        assert folder.exists()
    finally:
        place.tidy(folder)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_drill_of_another_container_with_the_same_tmp_is_left_alone():
    folder = place.make()
    try:
        sweep = [sys.executable, "-c", "from whichrank.lab import place; place.sweep()"]
        subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", *sweep], check=True)
        assert folder.is_dir()
    finally:
        place.tidy(folder)
