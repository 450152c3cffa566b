"""Two nodes of a job on this host, told apart by their names: what anybody can run without being root."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from tests import cost
from tests.run import watched
from tests.run.two_hosts import JOB
from whichrank import report

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.slow,
]


def start(folder: Path, name: str, what: str, store: int, *options: object) -> subprocess.Popen[str]:
    node = ("--nodes", "2", "--node", str(int(name[1:]) - 1), "--port", str(store))
    launcher = watched.forked(JOB, what, folder, world=2, options=node)
    command = watched.whichrank("run", "--out", folder / "out", "--node-name", name, *options, "--", *launcher)
    return subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=watched.environment())


def test_a_killed_rank_of_another_node(tmp_path: Path) -> None:
    """The same --out for both, as on a shared file system, and no token: nobody else can reach the loopback."""
    store, leader = watched.free_port(), watched.free_port()
    places = ("--leader", f"127.0.0.1:{leader}")
    jobs = [start(tmp_path, name, "kill", store, *places) for name in ("n1", "n2")]
    told = [job.communicate(timeout=240) for job in jobs]
    assert [job.returncode for job in jobs] == [1, 1], told
    out = tmp_path / "out"
    run = json.loads((out / "run.json").read_text())
    schema = json.loads((Path(report.__file__).parent / "schemas" / "run.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(run)
    assert run["role"] == "leader"
    (other,) = run["nodes"]
    assert {run["node"], other["name"]} == {"n1", "n2"}
    assert (out / "nodes" / other["name"] / "run.json").exists(), "each has a place of its own"
    verdict = json.loads((out / "verdict.json").read_text())
    assert (verdict["verdict"]["cause"], verdict["verdict"]["culprits"]["ranks"]) == ("rank-killed", [2]), told
    assert {rank["host"] for rank in verdict["ranks"]} == {"n1", "n2"}
    assert verdict["verdict"]["culprits"]["hosts"] in (["n1"], ["n2"])
    assert sum("the verdict on all nodes, by" in errors for _, errors in told) == 1
    assert not (out / ".uploads").exists()


def forked(number: int, store: int) -> list[str]:
    node = ("--nnodes=2", "--node", str(number), "--port", str(store))
    return watched.forked(JOB, "none", world=1, options=node)


def torchrun(_number: int, store: int) -> list[str]:
    return [
        sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-id=job",
        "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{store}", str(JOB), "none",
    ]  # fmt: skip


@pytest.mark.parametrize("launcher", [forked, pytest.param(torchrun, marks=pytest.mark.bars)])
def test_nodes_that_were_not_told_of_each_other_work_alone(
    tmp_path: Path, launcher: Callable[[int, int], list[str]]
) -> None:
    store, jobs = watched.free_port(), []
    for number, name in enumerate(("n1", "n2")):
        (tmp_path / name).mkdir()
        line = watched.whichrank("run", "--out", tmp_path / name / "out", "--node-name", name, "--")
        line += [*launcher(number, store), str(tmp_path / name)]
        jobs.append(subprocess.Popen(line, stdout=-1, stderr=-1, text=True, env=watched.environment()))
    told = [job.communicate(timeout=240) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], told
    for output, errors in told:
        assert errors.count("whichrank:") == 1
        assert "give every node --leader HOST:PORT or --shared DIR for one verdict" in errors
        assert output.count("done") == 1
    assert json.loads((tmp_path / "n1" / "out" / "run.json").read_text())["alarms"] == []


def test_a_leader_stays_small() -> None:
    """A quarter of the ranks that benchmarks/leader.py has, within the same bar."""
    path = Path(__file__).parents[3] / "benchmarks" / "leader.py"
    spec = importlib.util.spec_from_file_location("leader_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    share, known = module.measure(16, 64, 6.0)
    assert known == 1024
    assert share < module.SHARE * max(1.0, cost.pace())
