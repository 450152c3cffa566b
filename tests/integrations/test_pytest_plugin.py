"""`pytest --whichrank` on real tests with real ranks."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT, command_environment

HANGS = """
import time
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def rank(number, store):
    dist.init_process_group("gloo", init_method="file://" + store, rank=number, world_size=2)
    dist.all_reduce(torch.ones(4))
    if number == 1:
        forget_to_reduce()
    dist.all_reduce(torch.ones(4))

def forget_to_reduce():
    time.sleep(600)

def test_two_ranks(tmp_path):
    mp.spawn(rank, args=(str(tmp_path / "store"),), nprocs=2)
"""
# Forked, so that torch is imported once.
FINE = HANGS.replace("time.sleep(600)", "pass").replace(
    "mp.spawn(rank, args", 'mp.start_processes(rank, start_method="fork", args'
)


def run(folder, text, *options, limit_s=150):
    """pytest on one test, with the plugin found by its entry point."""
    found = re.search(r"\[project.entry-points.pytest11\]\n(.+)\n", (ROOT / "pyproject.toml").read_text())
    about = folder / "site" / "whichrank_plugin-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: whichrank-plugin\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[pytest11]\n{found[1].replace(chr(34), '')}\n")
    (folder / "test_it.py").write_text(text)
    environment = command_environment()
    environment["PYTHONPATH"] = f"{about.parent}:{environment['PYTHONPATH']}"
    environment["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), *options]
    return subprocess.run(
        [*command, str(folder / "test_it.py")],
        capture_output=True, text=True, timeout=limit_s, env=environment, cwd=folder, check=False,
    )  # fmt: skip


@pytest.mark.job
def test_a_test_that_hangs_ends_with_the_verdict(tmp_path):
    done = run(tmp_path, HANGS, "--whichrank", f"--whichrank-out={tmp_path / 'kept'}", limit_s=380)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test_two_ranks hangs" in done.stdout
    assert re.search(r"^HANG · ", done.stdout, re.MULTILINE)
    assert re.search(r"\b[Rr]ank 1\b", done.stdout)
    assert "forget_to_reduce" in done.stdout
    assert list((tmp_path / "kept").glob("*/verdict.json"))


@pytest.mark.job
@pytest.mark.bars
def test_a_test_that_works_is_left_alone(tmp_path):
    done = run(tmp_path, FINE, "--whichrank", f"--whichrank-out={tmp_path / 'kept'}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "whichrank" not in done.stdout
    assert not list((tmp_path / "kept").iterdir())
