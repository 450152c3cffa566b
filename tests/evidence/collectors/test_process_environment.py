"""The environment of a real process: at its start, and now."""

import os
import subprocess
import sys

import pytest

from whichrank.evidence.collectors.process_environment import collect
from whichrank.flows.env.lint import lint
from whichrank.flows.env.processes import as_file, what_nccl_said
from whichrank.model.errors import UnreadableError

CHILD = """
import os, sys
os.environ["NCCL_DEBUG"] = "WARN"
os.environ["NCCL_IB_DISABLE"] = "1"
os.environ["MODEL"] = "x" * 10_000
del os.environ["GONE"]
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def child():
    environ = {"PATH": os.environ["PATH"], "NCCL_DEBUG": "INFO", "GONE": "1", "RANK": "3"}
    process = subprocess.Popen([sys.executable, "-c", CHILD], env=environ, stdin=-1, stdout=-1, text=True)
    assert process.stdout.readline() == "ready\n"
    yield process.pid
    process.communicate("")


def present(pid):
    found = collect(pid)
    if found.now is None:
        pytest.skip(f"this machine does not let us look: {found.note}")
    return found


def test_start_and_present_environment(child):
    found = present(child)
    assert found.start["NCCL_DEBUG"] == "INFO"
    assert found.start["GONE"] == "1"
    assert found.now["NCCL_DEBUG"] == "WARN"
    assert found.now["NCCL_IB_DISABLE"] == "1"
    assert found.now["MODEL"] == "x" * 10_000
    assert "GONE" not in found.now


def test_our_own_present_environment(monkeypatch):
    monkeypatch.setenv("WHICHRANK_TEST_VARIABLE", "hier")
    assert present(os.getpid()).now["WHICHRANK_TEST_VARIABLE"] == "hier"


def test_what_changed_is_mentioned_and_what_nccl_read_decides(child, tmp_path):
    found = present(child)
    changed = [f for f in lint([as_file(found, {})]).findings if f.code == "ENV116"]
    assert {(f.message.split()[0], f.severity) for f in changed} == {
        ("NCCL_DEBUG", "info"),
        ("NCCL_IB_DISABLE", "info"),
    }
    assert changed[0].subject.ranks == (3,)

    log = tmp_path / "nccl.log"
    log.write_text(
        "vm:1:1 [0] NCCL INFO NCCL_DEBUG set by environment to INFO.\n"
        "vm:1:1 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.\n"
    )
    decided = [f for f in lint([as_file(found, what_nccl_said([log]))]).findings if f.code == "ENV116"]
    assert [(f.message.split()[0], f.severity) for f in decided] == [("NCCL_DEBUG", "warning")]
    assert decided[0].evidence[1].locator == "line 1"


def test_a_process_that_is_not_there():
    with pytest.raises(UnreadableError):
        collect(2**22 + 1)


def test_a_folder_that_lies_is_survived(tmp_path):
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "environ").write_bytes(b"A=1\0B=2\0")
    (folder / "maps").write_text("00400000-00401000 r--p 00000000 00:00 0 /x/libc.so.6\n")
    (folder / "exe").symlink_to("/x/python")
    (folder / "root").mkdir()
    (folder / "root" / "x").mkdir()
    (folder / "root" / "x" / "libc.so.6").write_bytes(b"\x7fELF\x02\x01" + b"\xff" * 60)
    found = collect(7, tmp_path)
    assert found.start == {"A": "1", "B": "2"}
    assert found.now is None
    assert found.note
