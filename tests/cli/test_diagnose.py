from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import standin
from tests.conftest import ROOT, command_environment
from whichrank.cli.after.diagnose import exit_code
from whichrank.cli.after.diagnose import format_name as chosen_format

STAND_IN = """
import sys, time
sys.path.insert(0, {root!r})
from tests import standin
from whichrank.cli.main import main
def diagnose(paths, **options):
    return standin.hang()
def waiting(paths, **options):
    from whichrank.evidence.intake import collect
    with collect(paths) as intake:
        print(intake.items[0].path, flush=True)
        time.sleep(60)
def slow(paths, progress, **options):
    for done in range(8):
        progress("reading", done, 7)
        time.sleep(0.1)
    return standin.hang()
standin.replace_flow({flow})
sys.argv[1:] = {arguments!r}
main()
"""


def script(*arguments: str, flow: str = "diagnose") -> list[str]:
    """The command with a flow that needs no evidence."""
    return [sys.executable, "-c", STAND_IN.format(root=str(ROOT), arguments=list(arguments), flow=flow)]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        script(*arguments),
        capture_output=True,
        text=True,
        timeout=60,
        env={**command_environment(), **environment},
        check=False,
    )


@pytest.mark.parametrize(
    ("make", "code"), [(standin.hang, 1), (standin.healthy, 0), (standin.unknown, 3), (standin.large, 1)]
)
def test_exit_codes(make, code):
    assert exit_code(make()) == code


def test_format_follows_the_name_of_the_output():
    assert chosen_format(None, Path("a/report.md")) == "markdown"
    assert chosen_format(None, Path("verdict.json")) == "json"
    assert chosen_format("text", Path("verdict.json")) == "text"
    assert chosen_format(None, None) == "text"


def test_piped_text_is_plain():
    done = run("diagnose", ".")
    assert done.returncode == 1
    assert done.stdout.startswith("Rank 2 skipped all_reduce 5")
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_json_goes_to_stdout():
    done = run("diagnose", ".", "--format", "json")
    assert json.loads(done.stdout)["verdict"]["cause"] == "conditional-collective"


def test_output_goes_to_the_file_whole(tmp_path):
    target = tmp_path / "report.md"
    done = run("diagnose", ".", "--output", str(target))
    assert done.returncode == 1
    assert done.stdout == ""
    assert str(target) in done.stderr
    assert target.read_text().startswith("## Rank 2 skipped")
    assert list(tmp_path.iterdir()) == [target]


def test_what_a_log_says_does_not_drive_the_terminal(whichrank, tmp_path):
    error = "ValueError: \x9b31m\x07\x00\u202egnp.exe"
    (tmp_path / "run.log").write_text(
        f'[rank1]: Traceback (most recent call last):\n[rank1]:   File "train.py", line 7, in step\n[rank1]: {error}\n'
    )
    done = whichrank("diagnose", tmp_path, "--output", tmp_path / "report.html")
    assert "gnp.exe" in done.stderr
    assert all(sign.isprintable() for sign in done.stderr.replace("\n", "")), ascii(done.stderr)


def test_output_that_cannot_be_written_is_a_usage_error(tmp_path):
    done = run("diagnose", ".", "--output", str(tmp_path / "missing" / "report.md"))
    assert done.returncode == 2
    assert "can't write" in done.stderr


def test_a_terminal_of_any_encoding_is_served():
    done = run("diagnose", ".", PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert "\\xb7 conditional-collective" in done.stdout


def received(terminal: int) -> str:
    """All that the other side writes until it closes."""
    data = b""
    try:
        while piece := os.read(terminal, 65536):
            data += piece
    except OSError:  # Linux says EIO when the other side is closed.
        pass
    os.close(terminal)
    return data.decode()


def on_a_terminal(*arguments: str, stream: str = "stdout", flow: str = "diagnose", **environment: str) -> str:
    """What a terminal of 60 columns receives from one of the two streams."""
    ours, theirs = pty.openpty()
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: theirs}
    child = subprocess.Popen(
        script(*arguments, flow=flow),
        stdin=subprocess.DEVNULL,
        env={**command_environment(), "TERM": "xterm-256color", "COLUMNS": "60", **environment},
        **streams,
    )
    os.close(theirs)
    told = received(ours)
    assert child.wait(timeout=60) == 1
    return told


def test_a_terminal_gets_colour_in_its_width(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    told = on_a_terminal("diagnose", ".")
    assert "\x1b[1;31m" in told.split("\n", 1)[0]
    plain = on_a_terminal("diagnose", ".", NO_COLOR="1")
    assert "\x1b" not in plain
    assert max(len(line.strip()) for line in plain.splitlines()) <= 60


def test_progress_is_shown_to_people_and_only_when_it_takes_a_while():
    assert "reading" in on_a_terminal("diagnose", ".", stream="stderr", flow="slow")
    assert on_a_terminal("diagnose", ".", "--quiet", stream="stderr", flow="slow") == ""
    assert on_a_terminal("diagnose", ".", stream="stderr") == ""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_nothing_behind(tmp_path, sent, code):
    import gzip

    packed = tmp_path / "fr_0.gz"
    packed.write_bytes(gzip.compress(b"some evidence"))
    child = subprocess.Popen(
        script("diagnose", str(packed), flow="waiting"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**command_environment(), "TMPDIR": str(tmp_path)},
    )
    unpacked = Path(child.stdout.readline().strip())
    assert unpacked.read_bytes() == b"some evidence"
    time.sleep(0.1)
    child.send_signal(sent)
    _, told = child.communicate(timeout=60)
    assert child.returncode == code
    assert "Traceback" not in told
    assert list(tmp_path.iterdir()) == [packed]
