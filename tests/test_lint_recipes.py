"""The recipes for `lint`: the hook and the workflow's steps are run on a project with a mistake and without."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, command_environment

yaml = pytest.importorskip("yaml")
WRONG = """\
import torch.distributed as dist


def save(rank):
    if rank == 0:
        print()
        dist.barrier()
"""
RIGHT = WRONG.replace("        dist.barrier()", "    dist.barrier()")
HOOK = yaml.safe_load((ROOT / "recipes/pre-commit/.pre-commit-config.yaml").read_text())["repos"][0]["hooks"][0]


@pytest.fixture
def project(tmp_path: Path):
    """A folder with a program, and the command on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "whichrank"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m whichrank "$@"\n')
    command.chmod(0o755)
    environment = command_environment()
    environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
    home = tmp_path / "project"
    home.mkdir()

    def run(text: str, *command: str) -> subprocess.CompletedProcess[str]:
        (home / "train.py").write_text(text)
        return subprocess.run(
            command, cwd=home, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    run.home = home
    return run


def test_the_hook_fails_on_a_finding_and_passes_without(project):
    entry = [*shlex.split(HOOK["entry"]), "train.py"]
    failed = project(WRONG, *entry)
    assert failed.returncode == 1
    assert "LINT101" in failed.stdout
    assert project(RIGHT, *entry).returncode == 0


def test_the_projects_own_hook_says_the_same():
    (own,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    for key in ("id", "entry", "types", "require_serial"):
        assert own[key] == HOOK[key]


@pytest.mark.skipif(shutil.which("pre-commit") is None, reason="pre-commit is not installed")
def test_pre_commit_runs_the_hook(project):
    shutil.copy(ROOT / "recipes/pre-commit/.pre-commit-config.yaml", project.home)
    for command in ("git init -q", "git add -A"):
        project(WRONG, *command.split())
    project(WRONG, "git", "add", "-A")
    assert "LINT101" in project(WRONG, "pre-commit", "run", "--all-files").stdout


@pytest.mark.parametrize(("text", "code"), [(WRONG, 1), (RIGHT, 0)])
def test_the_steps_of_the_workflow(project, text, code):
    steps = yaml.safe_load((ROOT / "recipes/github/lint.yml").read_text())["jobs"]["lint"]["steps"]
    scripts = {step["name"]: step["run"] for step in steps if "run" in step}
    read = project(text, "bash", "-e", "-c", scripts["Read the training code"])
    assert (read.returncode, read.stderr) == (0, "")
    document = json.loads((project.home / "whichrank.sarif").read_text())
    assert len(document["runs"][0]["results"]) == code
    assert project(text, "bash", "-e", "-c", scripts["Fail on findings"]).returncode == code


def test_the_workflow_uploads_what_it_wrote():
    text = (ROOT / "recipes/github/lint.yml").read_text()
    document = yaml.safe_load(text)
    upload = next(s for s in document["jobs"]["lint"]["steps"] if "upload-sarif" in s.get("uses", ""))
    assert f"--output {upload['with']['sarif_file']}" in text
    assert document["permissions"]["security-events"] == "write"
