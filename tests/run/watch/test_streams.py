"""A watched job's output: byte for byte where it went before, on a terminal too, and a copy for the evidence."""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.run import watched
from tests.run.terminal import Terminal

FAILS = "import sys; print('to stdout', flush=True); print('to stderr', file=sys.stderr); sys.exit(7)"


def line(out: Path, *command: str) -> list[str]:
    return watched.whichrank("run", "--no-history", "--quiet", "--out", out, "--", *command)


def shell(text: str, out: Path, *command: str) -> subprocess.CompletedProcess[bytes]:
    words = ["bash", "-c", text, "bash", *line(out, *command)]
    return subprocess.run(words, capture_output=True, env=watched.environment(), timeout=60, check=False)


def test_bytes_and_codes_through_a_pipe(tmp_path: Path) -> None:
    """Large, binary, and on both streams."""
    code = (
        "import os, sys\n"
        "piece = bytes(range(256)) * 4096\n"
        "for _ in range(8):\n"
        "    sys.stdout.buffer.write(piece)\n"
        "    sys.stderr.buffer.write(piece[::-1])\n"
    )
    done = subprocess.run(
        line(tmp_path / "out", sys.executable, "-c", code), capture_output=True, env=watched.environment(), check=False
    )
    piece = bytes(range(256)) * 4096
    assert done.returncode == 0
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(piece * 8).digest()
    assert hashlib.sha256(done.stderr).digest() == hashlib.sha256(piece[::-1] * 8).digest()


@pytest.mark.slow
def test_the_same_evidence_on_a_terminal_in_a_pipe_in_a_file_and_nowhere(tmp_path: Path) -> None:
    view = Terminal(line(tmp_path / "terminal", sys.executable, "-c", FAILS), 80)
    try:
        view.read_until("to stderr")
        assert view.process.wait(60) == 7
    finally:
        view.close()
    shell('"$@" 2>&1 | cat', tmp_path / "pipe", sys.executable, "-c", FAILS)
    shell('"$@" >&"$0.log" 2>&1'.replace("$0", str(tmp_path / "file")), tmp_path / "file", sys.executable, "-c", FAILS)
    assert shell('"$@" >/dev/null 2>&1', tmp_path / "null", sys.executable, "-c", FAILS).returncode == 7
    for name in ("terminal", "pipe", "file", "null"):
        logs = tmp_path / name / "bundle" / "logs"
        assert b"".join(sorted(path.read_bytes() for path in logs.iterdir())) == b"to stdout\nto stderr\n", name


@pytest.mark.parametrize(("closed", "left"), [(">&-", "02"), ("2>&-", "01"), (">&- 2>&-", "0"), ("<&- >&- 2>&-", "")])
def test_closed_streams_stay_closed_and_keep_the_code(tmp_path: Path, closed: str, left: str) -> None:
    code = f'for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && r=$r$n; done; [ "$r" = "{left}" ] && kill -9 $$; exit 0'
    done = shell(f'exec "$@" {closed}', tmp_path / "out", "sh", "-c", code)
    assert done.returncode == -signal.SIGKILL


def test_who_reads_no_more_is_noticed(tmp_path: Path) -> None:
    done = shell('"$@" | head -1; echo "${PIPESTATUS[0]}"', tmp_path / "out", "yes")
    assert done.stdout == f"y\n{128 + signal.SIGPIPE}\n".encode()


def test_a_terminal_of_the_same_size_that_follows_the_window(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "heard = []\n"
        "signal.signal(signal.SIGWINCH, lambda *_: heard.append(os.get_terminal_size(1).columns))\n"
        "print(os.isatty(0), os.isatty(1), os.isatty(2), os.get_terminal_size(2).columns, 'ready', flush=True)\n"
        "while 55 not in heard:\n"
        "    signal.pause()\n"
        "print('now 55', flush=True)\n"
    )
    view = Terminal(line(tmp_path / "out", sys.executable, "-c", code), 100)
    try:
        view.read_until("True True True 100 ready")
        fcntl.ioctl(view.end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 55, 0, 0))
        view.read_until("now 55")
        assert view.process.wait(120) == 0
        assert "\r\r" not in view.text
    finally:
        view.close()


def test_a_change_of_the_window_is_told_on_without_a_terminal(tmp_path: Path) -> None:
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGWINCH, lambda *_: sys.exit(9))\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    job = subprocess.Popen(line(tmp_path / "out", sys.executable, "-c", code), stdout=-1, env=watched.environment())
    assert job.stdout is not None
    assert job.stdout.readline() == b"ready\n"
    job.send_signal(signal.SIGWINCH)
    job.communicate(timeout=60)
    assert job.returncode == 9


def test_the_output_goes_on_when_the_watcher_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "print('ready', flush=True)\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.05)\n"
        "print('still heard', flush=True)\n"
    )
    job = subprocess.Popen(line(tmp_path / "out", sys.executable, "-c", code), stdout=-1, env=watched.environment())
    assert job.stdout is not None
    assert job.stdout.readline() == b"ready\n"
    job.kill()
    job.wait()
    (tmp_path / "go").touch()
    assert job.stdout.read() == b"still heard\n"


def test_a_child_that_outlives_the_job_is_still_heard(tmp_path: Path) -> None:
    """And nobody waits for it."""
    code = f"(while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo late) & echo early"
    job = subprocess.Popen(line(tmp_path / "out", "sh", "-c", code), stdout=-1, env=watched.environment())
    assert job.stdout is not None
    assert job.stdout.readline() == b"early\n"
    assert job.wait(120) == 0
    (tmp_path / "go").touch()
    assert job.stdout.read() == b"late\n"


def test_a_long_output_keeps_its_newest_part(tmp_path: Path) -> None:
    from whichrank.run.watch.output import relay

    source, end = os.pipe()
    path = tmp_path / "copy"
    stream = relay.Stream(source, os.open(os.devnull, os.O_WRONLY), 1000, str(path))
    for number in range(10):
        os.write(end, str(number).encode() * 300)
        assert stream.move()
    os.close(end)
    assert not stream.move()
    kept = path.with_name("copy.older").read_bytes() + path.read_bytes()
    assert kept == b"".join(str(n).encode() * 300 for n in range(4, 10))
