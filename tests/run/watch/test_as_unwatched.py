"""A job under `run` behaves as unwatched: exit codes, signals, terminal, streams byte for byte."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run import as_unwatched_probe, watched
from tests.run.terminal import Terminal

PROBE = [sys.executable, as_unwatched_probe.__file__]


def line(out: Path, command: list[str]) -> list[str]:
    return watched.whichrank("run", "--no-history", "--quiet", "--out", out, "--", *command)


def probed(tmp_path: Path, name: str, command: list[str], how: str) -> dict[str, object]:
    """What the probe tells, through pipes or in a terminal."""
    told = tmp_path / f"{name}.json"
    whole = [*(line(tmp_path / f"{name}-out", [*command, str(told)]) if name == "watched" else [*command, str(told)])]
    if how == "pipes":
        environ = {**watched.environment(), "OF_THE_TEST": "a b\tc"}
        done = subprocess.run(
            whole, input=b"", capture_output=True, env=environ, cwd=tmp_path, timeout=120, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (23, b"", b"")
    else:
        view = Terminal(whole, 91)
        try:
            assert view.process.wait(120) == 23
        finally:
            view.close()
    found: dict[str, object] = json.loads(told.read_text())
    found.pop("arguments")
    return found


@pytest.mark.parametrize("how", ["pipes", "terminal"])
def test_a_process_finds_everything_as_it_was(tmp_path: Path, how: str) -> None:
    assert len(as_unwatched_probe.SITUATIONS) >= 40
    alone, under = (probed(tmp_path, name, PROBE, how) for name in ("alone", "watched"))
    different = {name: (alone[name], under[name]) for name in alone if alone[name] != under[name]}
    assert different == {}


ENDINGS = {
    **{f"exit {code}": f"exit {code}" for code in (0, 1, 2, 3, 4, 5, 126, 127, 128, 130, 137, 139, 143, 255)},
    **{f"signal {number}": f"kill -{number} $$" for number in (1, 2, 3, 6, 9, 11, 13, 14, 15)},
    "an abort of Python": f"exec {sys.executable} -c 'import os; os.abort()'",
    "an exception": f"exec {sys.executable} -c 1/0",
    "sys.exit with words": f"exec {sys.executable} -c 'raise SystemExit(\"no data\")'",
    "KeyboardInterrupt": f"exec {sys.executable} -c 'raise KeyboardInterrupt'",
    "os._exit with output in the buffer": f"exec {sys.executable} -c 'import os; print(1); os._exit(5)'",
    "output without an end of line": "printf abc; printf def >&2",
    "only stderr": "echo x >&2; exit 6",
    "binary": "head -c 300000 /dev/zero | tr '\\0' '\\377'",
    "two streams in turn": "for i in 1 2 3 4 5; do echo $i; echo $i >&2; done",
    "reads its input": "cat",
    "a reader that goes": "yes | head -3",
    "a background child": "(sleep 0.2; echo late) & echo early; wait",
    "a trap": "trap 'echo caught; exit 8' TERM; kill -TERM $$; sleep 5",
    "a command that is not there": "exec /nonexistent/program",
    "a file that can't run": "exec /etc/passwd",
}


def compared(tmp_path: Path, name: str) -> None:
    command = ["sh", "-c", ENDINGS[name]]
    plain, seen = (
        subprocess.run(
            words, input=b"one\ntwo\n", capture_output=True, env=watched.environment(), timeout=120, check=False
        )
        for words in (command, line(tmp_path / "out", command))
    )
    assert (seen.returncode, seen.stdout) == (plain.returncode, plain.stdout)
    theirs = b"".join(one for one in seen.stderr.splitlines(keepends=True) if not one.startswith(b"whichrank: "))
    assert theirs == plain.stderr


QUICK = ("exit 3", "signal 9", "a trap", "reads its input")


@pytest.mark.parametrize("name", QUICK)
def test_a_job_ends_as_unwatched(tmp_path: Path, name: str) -> None:
    compared(tmp_path, name)


CRASH = "an abort of Python"


@pytest.mark.bars
@pytest.mark.parametrize("name", sorted(set(ENDINGS) - {*QUICK, CRASH}))
def test_every_job_ends_as_unwatched(tmp_path: Path, name: str) -> None:
    compared(tmp_path, name)


@pytest.mark.bars
def test_a_python_that_crashes_says_where_and_ends_as_unwatched(tmp_path: Path) -> None:
    """The one difference: its stack, which nothing else could tell afterwards."""
    command = ["sh", "-c", ENDINGS[CRASH]]
    done = subprocess.run(
        line(tmp_path / "out", command), capture_output=True, env=watched.environment(), timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (-6, b"")
    assert done.stderr.startswith(b"Fatal Python error: Aborted")
