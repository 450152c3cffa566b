"""Completion in real shells, each with a home of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


def environment(home: Path, shell: str) -> dict[str, str]:
    kept = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(home), "SHELL": f"/bin/{shell}", "TERM": "dumb"}
    return kept | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}


def ran(home: Path, shell: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whichrank", "completion", *words], env=environment(home, shell), capture_output=True,
        text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_installed_twice_is_installed_once(tmp_path, shell):
    first, second = (ran(tmp_path, shell, "--install") for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stderr
    written = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    expected = {"bash": {"completion.bash", ".bashrc"}, "zsh": {"completion.zsh", ".zshrc"}, "fish": {"whichrank.fish"}}
    assert written == expected[shell]
    if shell != "fish":
        assert len((tmp_path / f".{shell}rc").read_text().splitlines()) == 1
        assert "already" in second.stdout


def test_what_stood_in_the_startup_file_stays(tmp_path):
    startup = tmp_path / ".bashrc"
    startup.write_bytes(b"alias ll='ls -l'\n# \xff no UTF-8\nlast line without end")
    assert ran(tmp_path, "bash", "--install").returncode == 0
    assert startup.read_bytes().startswith(b"alias ll='ls -l'\n# \xff no UTF-8\nlast line without end\n[ -r ")


def test_bash_completes_verbs_and_options(tmp_path):
    assert ran(tmp_path, "bash", "--install").returncode == 0
    asked = (
        'COMP_WORDS=(whichrank dia); COMP_CWORD=1; _whichrank_completion whichrank; echo "verbs ${COMPREPLY[*]}"\n'
        'COMP_WORDS=(whichrank diagnose --sou); COMP_CWORD=2; _whichrank_completion whichrank; echo "${COMPREPLY[*]}"\n'
    )
    done = subprocess.run(
        ["bash", "--noprofile", "--rcfile", str(tmp_path / ".bashrc"), "-i"], input=asked, capture_output=True,
        text=True, env=environment(tmp_path, "bash"), check=False, timeout=60, start_new_session=True,
    )  # fmt: skip
    assert "verbs diagnose" in done.stdout
    assert "--source" in done.stdout


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish on this machine")
def test_fish_completes_verbs(tmp_path):
    assert ran(tmp_path, "fish", "--install").returncode == 0
    done = subprocess.run(
        ["fish", "-c", "complete -C 'whichrank dia'"], capture_output=True, text=True, check=False, timeout=60,
        env=environment(tmp_path, "fish"),
    )  # fmt: skip
    assert done.stdout.startswith("diagnose")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh on this machine")
def test_zsh_registers_the_completion(tmp_path):
    assert ran(tmp_path, "zsh", "--install").returncode == 0
    done = subprocess.run(
        ["zsh", "-i", "-c", "echo registered ${_comps[whichrank]}"], capture_output=True, text=True, check=False,
        timeout=60, env=environment(tmp_path, "zsh"),
    )  # fmt: skip
    assert "registered _whichrank_completion" in done.stdout


def test_an_unknown_shell_is_asked_for(tmp_path):
    done = ran(tmp_path, "tcsh")
    assert done.returncode == 2
    assert "whichrank completion bash|zsh|fish" in done.stderr


def test_a_home_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / ".local").write_text("a file, not a folder")
    done = ran(tmp_path, "bash", "--install")
    assert done.returncode == 2
    assert "can't be written" in done.stderr


def test_the_script_goes_to_stdout_without_install(tmp_path):
    done = ran(tmp_path, "zsh", "fish")
    assert done.returncode == 0
    assert "complete --no-files --command whichrank" in done.stdout
    assert not list(tmp_path.iterdir())
