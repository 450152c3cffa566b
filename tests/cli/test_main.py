from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests import standin
from tests.conftest import command_environment
from whichrank import __version__
from whichrank.cli import main as command_line
from whichrank.model.errors import UnreadableError

HELP_CPU_S = 0.120
# Other work on the machine (caches, frequency) makes CPU time vary; the best of several runs varies least.
SLACK = 1.25


def test_help_names_every_verb_with_its_line(whichrank):
    done = whichrank("--help")
    assert done.returncode == 0
    for verb, file in command_line.verbs().items():
        line = command_line.first_line(file)
        assert line, f"{file.name} has no docstring"
        # The end of a long line may be wrapped.
        assert f"{verb} " in done.stdout
        assert line[:30] in done.stdout


def test_every_verb_has_a_command_that_explains_itself(whichrank):
    for verb in command_line.verbs():
        done = whichrank(verb, "--help")
        assert (done.returncode, done.stderr) == (0, "")
        assert "Usage: whichrank" in done.stdout


@pytest.mark.parametrize(
    ("verb", "given", "known"),
    [("run", "--polcy", "--policy"), ("profile", "--no-shapes", "--shapes"), ("rehearse", "--wrld", "--world-size")],
)
def test_a_misspelt_option_before_the_command_is_not_taken_for_the_command(whichrank, verb, given, known):
    done = whichrank(verb, given, "--", "true")
    assert done.returncode == 2
    assert given in done.stderr
    assert known in done.stderr
    assert "can't start" not in done.stderr


def loaded_by(*arguments: str) -> set[str]:
    """The modules that a command has loaded when it ends."""
    script = "import sys; from whichrank.cli.main import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=command_environment(),
        check=True,
    )
    return set(done.stderr.split())


def test_help_imports_no_verb_and_nothing_heavy():
    loaded = loaded_by("-h")
    assert not loaded & {f"whichrank.cli.{file.parent.name}.{verb}" for verb, file in command_line.verbs().items()}
    assert not loaded & {"numpy", "rich", "msgspec", "torch", "asyncio", "multiprocessing"}


def test_a_diagnosis_of_dumps_alone_imports_nothing_for_logs_and_archives():
    """Half of the time of a short run is spent on imports."""
    dumps = Path(__file__).parents[1] / "samples" / "flight_recorder" / "nccl_dataloader_stall"
    loaded = loaded_by("diagnose", "--quiet", "--format", "json", str(dumps))
    assert "whichrank.timeline.collectives.troubles.root" in loaded
    logs = {"whichrank.facts.messages", "whichrank.timeline.job_state.statements", "whichrank.evidence.jobs_in_file"}
    archives = {"whichrank.evidence.archives", "tempfile", "shutil"}
    assert not loaded & {*logs, *archives, "numpy.ma", "json"}  # numpy's own median and unique load masked arrays


@pytest.mark.bars
def test_help_is_quick():
    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "whichrank", "--help"],
            stdout=subprocess.DEVNULL,
            env=command_environment(),
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    once()  # writes the byte code
    assert min(once() for _ in range(7)) <= HELP_CPU_S * SLACK


def test_version(whichrank_process):
    assert whichrank_process("--version").stdout == f"whichrank {__version__}\n"


def test_a_verb_of_verbs_by_itself_shows_its_help(whichrank):
    done = whichrank("rules")
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: whichrank rules")


def test_no_arguments_show_the_help_as_a_usage_error(whichrank):
    done = whichrank()
    assert done.returncode == 2
    assert "diagnose" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["diagnos", "x"], ["no verb 'diagnos'", "Did you mean diagnose?"]),
        (["zzzzz"], ["no verb 'zzzzz'"]),
        (["diagnose", "--fromat", "json", "."], ["--fromat", "--format"]),
        (["diagnose", "--format", "jsno", "."], ["jsno", "json"]),
        (["diagnose"], ["PATH"]),
        (["diagnose", "no/such/file"], ["no/such/file"]),
        (["--nonsense"], ["--nonsense"]),
    ],
)
def test_usage_errors_are_two_lines_and_exit_2(whichrank, arguments, words):
    done = whichrank(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert all(word in done.stderr for word in words)
    assert len(done.stderr.splitlines()) <= 2


@pytest.mark.parametrize("verb", ["diagnose", "compare", "lint", "scrub"])
def test_complaints_spell_out_what_a_terminal_would_obey(whichrank, tmp_path, verb):
    odd = str(tmp_path / "no\x9b31m\u202e\x1b]0;x\x07such")
    answer = whichrank(verb, odd, *([odd] if verb == "compare" else []))
    assert answer.returncode in (2, 3)
    assert not set(answer.stderr) & set("\x9b\u202e\x1b\x07")


def test_a_path_without_a_verb_gets_the_command(whichrank, example):
    done = whichrank(example)
    assert done.returncode == 2
    assert f"whichrank diagnose {example}" in done.stderr


def failing(error: BaseException):
    def diagnose(*_args: object, **_kwargs: object) -> None:
        raise error

    return diagnose


@pytest.fixture
def flow(monkeypatch):
    """Put another flow behind the command, in this process."""

    def replace(diagnose) -> None:
        for name in ("whichrank.flows", "whichrank.flows.diagnose", "whichrank.flows.diagnose.pipeline"):
            monkeypatch.setitem(sys.modules, name, sys.modules.get(name))
        standin.replace_flow(diagnose)

    return replace


def test_known_errors_come_with_their_hint(flow, capsys):
    flow(failing(UnreadableError("nothing could be read", "Give the folder of the dumps.")))
    assert command_line.run(["diagnose", "."]) == 3
    assert capsys.readouterr().err == "whichrank: nothing could be read\n  Give the folder of the dumps.\n"


def test_unexpected_errors_have_one_line_and_no_traceback(flow, capsys, monkeypatch):
    monkeypatch.delenv("WHICHRANK_DEBUG", raising=False)
    flow(failing(ZeroDivisionError("division by zero")))
    assert command_line.run(["diagnose", "."]) == 4
    told = capsys.readouterr().err
    assert "internal error: ZeroDivisionError: division by zero" in told
    assert "report" in told
    assert "Traceback" not in told


def test_unexpected_errors_show_all_when_asked(flow, monkeypatch):
    monkeypatch.setenv("WHICHRANK_DEBUG", "1")
    flow(failing(ZeroDivisionError("division by zero")))
    with pytest.raises(ZeroDivisionError):
        command_line.run(["diagnose", "."])


def test_interruption_is_130(flow):
    flow(failing(KeyboardInterrupt()))
    assert command_line.run(["diagnose", "."]) == 130


def test_a_reader_that_goes_away_is_no_error():
    child = subprocess.Popen(
        [sys.executable, "-m", "whichrank", "schema", "diagnose"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**command_environment(), "PYTHONUNBUFFERED": "1"},
    )
    child.stdout.close()
    told = child.stderr.read()
    child.stderr.close()
    assert child.wait(timeout=60) == 0
    assert told == b""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["explain", "NCCL_DEBUG"]])
def test_a_full_disk_behind_the_output_is_no_defect(arguments):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "whichrank", *arguments], stdout=full, stderr=subprocess.PIPE, text=True,
            env=command_environment(), check=False,
        )  # fmt: skip
    assert done.returncode == command_line.USAGE
    assert "No space left on device" in done.stderr
    assert "internal error" not in done.stderr


@pytest.mark.parametrize("arguments", ["--help", "lint .", "rules list", "explain NCCL_DEBUG", "diagnose ."])
def test_a_closed_output_is_no_defect(arguments, tmp_path):
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} -m whichrank {arguments} >&-"], stderr=subprocess.PIPE, text=True,
        env=command_environment(), cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == command_line.USAGE
    assert "internal error" not in done.stderr


def test_a_closed_stderr_does_not_change_the_exit_code(tmp_path):
    line = f"exec {sys.executable} -m whichrank diagnose {tmp_path}/nope 2>&-"
    done = subprocess.run(["/bin/sh", "-c", line], env=command_environment(), check=False)
    assert done.returncode == command_line.USAGE
