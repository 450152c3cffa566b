"""Jobs of a real Slurm: two nodes, sbatch and srun, a hang, a time limit, a requeue, one task per rank."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.run import cluster, watched
from tests.run.cluster import Cluster
from tests.together import Together
from whichrank.evidence.collectors import processes

pytestmark = [
    pytest.mark.skipif(bool(cluster.why_not()), reason=cluster.why_not() or "-"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.slow,
]
WATCHED = f"{sys.executable} -m whichrank run --no-history"
TORCHRUN = f"{sys.executable} -m torch.distributed.run"
HEAD = "#!/bin/bash\n#SBATCH --time=10\n"


@dataclass
class Ended:
    """A job that is over."""

    job: int
    folder: Path
    shown: dict[str, str]
    before: str = ""
    """What an undisturbed run printed."""

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def out(self, step: str = "") -> Path:
        return self.folder / f"whichrank-{self.job}{step}"

    @property
    def early(self) -> set[int]:
        """Ranks that a watcher has seen before they had a process group; the last line may be half written."""
        lines = [line for path in self.out(".0").rglob("history.jsonl") for line in path.open() if line.endswith("\n")]
        return {row["rank"] for row in map(json.loads, lines) if row["phase"] == "torch imported"}

    def document(self, name: str, step: str = "") -> dict[str, Any]:
        path = self.out(step) / name
        assert path.exists(), self.log
        return json.loads(path.read_text())


def hang(lab: Cluster, folder: Path) -> Ended:
    """Two nodes with two ranks each; rank 2 never comes back from loading a batch."""
    launch = f"{sys.executable} {watched.HERE / 'fork_launcher.py'} --nodes $SLURM_NNODES --node $SLURM_NODEID"
    command = f"exec {WATCHED} --policy end -- {launch} --port {watched.free_port()} 2 {watched.JOB} stuck"
    script = f"{HEAD}srun --cpus-per-task=2 bash -c '{command}'\n"
    job = lab.submit(folder, script, "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=2")
    return Ended(job, folder, lab.wait(job, 240))


def limit(lab: Cluster, folder: Path) -> Ended:
    """All is well until the time is over; Slurm looks at the limits twice a minute."""
    launch = f"{TORCHRUN} --standalone --nproc-per-node=2 {watched.HERE / 'small_job.py'} {folder}"
    job = lab.submit(folder, f"{HEAD}exec {WATCHED} -- {launch}\n", "--ntasks=1", "--cpus-per-task=2")
    until("it runs", (folder / "ready.1").exists)
    lab.call("scontrol", "update", f"JobId={job}", "EndTime=now+3")
    return Ended(job, folder, lab.wait(job, 240))


def again(lab: Cluster, folder: Path) -> Ended:
    """Warned in the midst of its work, it is ended, queued again, and goes on from its checkpoint."""
    (folder / "undisturbed").mkdir(parents=True)
    launch = f"{TORCHRUN} --standalone --nproc-per-node=2 {watched.HERE / 'resumable.py'}"
    asked = f"--requeue --checkpoints {folder / 'checkpoints'} --resume-env RESUME_FROM"
    script = f"{HEAD}exec {WATCHED} {asked} -- {launch} {folder} once-hang\n"
    job = lab.submit(folder, script, "--requeue", "--signal=B:USR1@60", "--ntasks=1", "--cpus-per-task=2")
    until("it hangs", (folder / "struck").exists)
    lab.call("scancel", "--batch", "--signal=USR1", job)
    plain = lab.submit(folder / "undisturbed", f"{HEAD}exec {launch} {folder / 'undisturbed'} none\n")
    until("it is queued again", lambda: lab.shown(job)["Restarts"] != "0")
    shown = lab.wait(job, 150)
    lab.wait(plain)
    return Ended(job, folder, shown, (folder / "undisturbed/log").read_text())


def tasks(lab: Cluster, folder: Path) -> Ended:
    """Slurm starts the ranks, and they take its numbers when they make their group; one comes late, and hangs later."""
    folder.mkdir(parents=True)
    seen = folder / "seen"
    (folder / "train.py").write_text(
        "import os, time\nimport torch.distributed as dist\n"
        "rank, world = int(os.environ['SLURM_PROCID']), int(os.environ['SLURM_NTASKS'])\n"
        "def load_batch(step):\n    time.sleep(600 if step == 40 and rank == 1 else 0.05)\n"
        f"while rank == 1 and not os.path.exists({str(seen)!r}):\n    time.sleep(0.1)\n"
        f"dist.init_process_group('gloo', init_method='tcp://127.0.0.1:{watched.free_port()}', rank=rank,"
        " world_size=world)\n"
        "import torch\n"
        "for step in range(100):\n    load_batch(step)\n    dist.all_reduce(torch.ones(4))\n"
    )
    script = f"{HEAD}srun --cpus-per-task=1 {WATCHED} --policy end -- {sys.executable} {folder / 'train.py'}\n"
    ended = Ended(lab.submit(folder, script, "--nodes=1", "--ntasks=2", "--cpus-per-task=1"), folder, {})
    until("a watcher knows the task", lambda: 1 in ended.early)
    seen.touch()
    ended.shown = lab.wait(ended.job, 240)
    return ended


def until(what: str, there: Callable[[], bool], limit_s: float = 240) -> None:
    deadline = time.monotonic() + limit_s
    while not there():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.fixture(scope="module")
def jobs(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Ended]]:
    kinds: dict[str, Callable[[Cluster, Path], Ended]] = {"hang": hang, "limit": limit, "again": again, "tasks": tasks}
    with cluster.started() as lab:
        conf = lab.environment["SLURM_CONF"]
        begun = Together(lambda kind, folder: kinds[kind](lab, folder / kind), kinds, 2, request)
        yield begun
        begun.close()
    left = [pid for pid in processes.everybody() if processes.environ(pid).get("SLURM_CONF") == conf]
    assert [pid for pid in left if (row := processes.stat(pid)) is not None and row.state not in "ZX"] == []


def test_a_hang_on_two_nodes_names_rank_and_node(jobs: Mapping[str, Ended]) -> None:
    job = jobs["hang"]
    document = job.document("verdict.json", ".0")
    verdict = document["verdict"]
    assert (verdict["category"], verdict["culprits"]["ranks"]) == ("hang", [2]), verdict["summary"]
    assert verdict["victims"]["ranks"] == [0, 1, 3]
    hosts = {row["rank"]: row["host"] for row in document["ranks"]}
    assert set(hosts.values()) == {"n1", "n2"}, "as Slurm calls the nodes; the host itself has one name"
    assert hosts[0] == hosts[1] != hosts[2] == hosts[3]
    assert f"on {hosts[2]}" in verdict["summary"]
    scheduler = document["job"]["scheduler"]
    assert (scheduler["id"], scheduler["step"], scheduler["nodes"]) == (str(job.job), "0", ["n1", "n2"])
    assert f"Slurm job {job.job}" in (job.out(".0") / "report.md").read_text()
    assert job.document("run.json", ".0")["node"] in ("n1", "n2")
    watched.check_schemas(job.out(".0"))


@pytest.mark.bars
def test_a_time_limit_is_no_crash(jobs: Mapping[str, Ended]) -> None:
    job = jobs["limit"]
    assert job.shown["JobState"] == "TIMEOUT", job.log
    verdict = job.document("verdict.json")["verdict"]
    assert verdict["cause"] == "job-ended-from-outside", verdict["summary"]
    assert verdict["culprits"]["ranks"] == verdict["culprits"]["hosts"] == []
    assert "time limit" in verdict["summary"]
    told = job.document("run.json")
    assert told["alarms"] == [], "nothing was wrong"
    ended = told["ended_by"]
    assert (ended["signal"], ended["sender"], ended["reason"]) == ("SIGTERM", "slurmstepd", "time limit")
    assert told["ended_on_request"] is True
    assert told["scheduler"]["ends"] is not None
    files = {file["path"] for file in job.document("bundle/manifest.json")["files"]}
    assert not any(path.startswith(("stacks/", "dumps/")) for path in files), "nobody was asked for anything"
    # Every process was told by Slurm; torchrun itself hears of it from us at most once more.
    assert job.log.count("DUE TO TIME LIMIT") >= 1
    watched.check_schemas(job.out())


@pytest.mark.bars
def test_a_requeued_job_ends_as_an_undisturbed_one(jobs: Mapping[str, Ended]) -> None:
    job = jobs["again"]
    assert (job.shown["JobState"], job.shown["Restarts"]) == ("COMPLETED", "1"), job.log
    assert re.findall(r"rank 0 begins at (\d+)", job.log) == ["0", "6"], "from the checkpoint of step 5"
    weights = re.findall(r"^weights ([0-9a-f]+)$", job.log, re.MULTILINE)
    assert weights == re.findall(r"^weights ([0-9a-f]+)$", job.before, re.MULTILINE), "bit for bit"
    assert len(weights) == 1
    told = job.document("run.json")
    assert (told["attempts"], told["scheduler"]["restarts"]) == (2, 1)
    first, second = told["restart"]["attempts"]
    assert (first["cause"], Path(second["checkpoint"]).name) == ("job-ended-from-outside", "step-000000000005")
    earlier = job.document("attempts/0/verdict.json")["verdict"]
    assert (earlier["cause"], earlier["culprits"]["ranks"]) == ("job-ended-from-outside", [])
    assert [each["results"] for each in told["earlier_attempts"]] == ["attempts/0"]
    watched.check_schemas(job.out())


def test_one_task_per_rank(jobs: Mapping[str, Ended]) -> None:
    job = jobs["tasks"]
    verdict = job.document("verdict.json", ".0")["verdict"]
    assert verdict["culprits"]["ranks"] == [1], verdict["summary"]
    told = job.document("run.json", ".0")
    assert told["role"] == "leader"
    names = {told["node"], *(node["name"] for node in told["nodes"])}
    assert names in ({"n1-task0", "n1-task1"}, {"n2-task0", "n2-task1"})
    assert {rank for node in told["nodes"] for rank in node["ranks"]} | set(told["ranks_seen"]) == {0, 1}
    assert 1 in job.early, "known by its task, before it had a process group"
