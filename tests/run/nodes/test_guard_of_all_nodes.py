"""Replicas on two nodes, each with a watcher of its own: whoever leads compares them while the job runs."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

from tests.run import watched
from whichrank.run.nodes import guard_mirror
from whichrank.run.nodes.guard_mirror import GuardPiece, Outgoing

JOB = Path(__file__).parent.parent / "guarded_node_job.py"
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def run(folder: Path, mode: str, steps: int, *options: object) -> list[tuple[int, str]]:
    """Two ranks on each of two nodes; the codes and what was told on stderr."""
    store, jobs = watched.free_port(), []
    for number, name in enumerate(("n1", "n2")):
        node = ("--preload", "torch._dynamo", "--nodes", "2", "--node", str(number), "--port", str(store))
        launcher = watched.forked(JOB, mode, steps, world=2, options=node)
        command = watched.whichrank("run", "--guard", "--out", folder / "out", "--node-name", name, *options, "--",
                                    *launcher)  # fmt: skip
        jobs.append(subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=watched.environment()))
    told = [job.communicate(timeout=240)[1] for job in jobs]
    return [(job.returncode, text) for job, text in zip(jobs, told, strict=True)]


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("way", ["leader", pytest.param("shared", marks=pytest.mark.bars)])
def test_a_replica_of_another_node_is_named_and_the_job_ends_on_both(tmp_path: Path, way: str) -> None:
    places = ("--leader", f"127.0.0.1:{watched.free_port()}") if way == "leader" else ("--shared", tmp_path / "shared")
    (tmp_path / "shared").mkdir(mode=0o700)
    ends = run(tmp_path, "flip", 4000, "--guard-stop", *places)
    assert all(code != 0 for code, _ in ends), ends
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())["verdict"]
    assert (verdict["cause"], verdict["culprits"]["ranks"]) == ("replica-divergence", [3]), ends
    assert verdict["certificate"][0]["module"] == "0.weight"
    assert sum("ending the job before it writes another checkpoint" in text for _, text in ends) == 1, ends


@needs_torch
@pytest.mark.bars
def test_a_healthy_job_of_two_nodes_is_compared_as_one(tmp_path: Path) -> None:
    ends = run(tmp_path, "none", 60, "--leader", f"127.0.0.1:{watched.free_port()}")
    assert [code for code, _ in ends] == [0, 0], ends
    (summary,) = [line for _, text in ends for line in text.splitlines() if "nothing differs" in line]
    assert "of 4 ranks" in summary
    assert len(list((tmp_path / "out" / "guard").glob("rank_*.jsonl"))) == 4


def test_pieces_make_the_same_file_whatever_is_sent_twice(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (here / "7.9.guard").write_bytes(b"x" * 100_000)
    outgoing = Outgoing([("launch0.n1", here)])
    for piece in outgoing.pieces():
        guard_mirror.keep(there, piece)
    with (here / "7.9.guard").open("ab") as stream:
        stream.write(b"y" * 10)
    outgoing.again()
    for piece in outgoing.pieces():
        guard_mirror.keep(there, piece)
    (copy,) = guard_mirror.copies([there], 0)
    assert copy.read_bytes() == b"x" * 100_000 + b"y" * 10
    assert guard_mirror.copies([there], 1) == []


@pytest.mark.parametrize("name", ["../a.guard", "a/b.guard", ".guard", "launch0.n1.txt", "..guard", "a..b.guard"])
def test_names_that_lead_elsewhere_are_not_kept(tmp_path: Path, name: str) -> None:
    guard_mirror.keep(tmp_path / "there", GuardPiece(name, 0, b"x"))
    assert not list(tmp_path.rglob("*guard*"))


def test_a_gap_is_not_filled_with_what_follows(tmp_path: Path) -> None:
    guard_mirror.keep(tmp_path, GuardPiece("a.guard", 10, b"later"))
    assert (tmp_path / "a.guard").read_bytes() == b""
