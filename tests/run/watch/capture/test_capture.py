"""What a capture of a real job holds: connections, networks, kernel log, RAS, stacks in C, logs of the agent."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.run import watched
from tests.run.watched import Done
from tests.together import Together
from whichrank import report
from whichrank.evidence.collectors import tools
from whichrank.worker import network

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.slow,
]
JOB = Path(__file__).parents[2] / "capture_job.py"
KINDS = ("idle", "held", "stop", "raise")
NEEDS_SPY = pytest.mark.skipif(tools.py_spy() is None, reason="py-spy is not installed")


def launch(what: str, *more: object, options: tuple[object, ...] = ()) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    port = ["--master_port", watched.free_port()]
    return [*map(str, (*launcher, *port, *options, JOB, what, *more))]


def stop_rank(out: Path) -> None:
    """From outside, when the job is in its stride."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lines = (out / "history.jsonl").read_text().splitlines() if (out / "history.jsonl").exists() else []
        for row in map(json.loads, lines):
            if row["rank"] == 1 and row["phase"] == "joined":
                os.kill(row["pid"], signal.SIGSTOP)
                return
        time.sleep(0.1)


@pytest.fixture(scope="module")
def jobs(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Done]]:
    def one(what: str, folder: Path) -> Done:
        out = folder / "out"
        (folder / "sock").mkdir()
        logs = ("--log-dir", folder / "logs", "--redirects", "3") if what == "raise" else ()
        if what in ("idle", "stop"):
            command = watched.forked(JOB, what, folder / "sock", world=2)
        else:
            command = launch(what, folder / "sock", options=logs)
        if what != "stop":
            return watched.run(command, out, "--policy", "end")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(stop_rank, out)
            return watched.run(command, out, "--policy", "end")

    begun = Together(one, KINDS, 2, request)
    yield begun
    begun.close()


def text(job: Done, path: str) -> str:
    assert path in job.files, (path, missing(job))
    return (job.out / "bundle" / path).read_text()


def missing(job: Done) -> list[dict[str, Any]]:
    return job.document("bundle/manifest.json")["missing"]


def schema(name: str) -> dict[str, Any]:
    return json.loads((Path(report.__file__).parent / "schemas" / f"{name}.schema.json").read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_keeps_its_schema(jobs: Mapping[str, Done], kind: str) -> None:
    for name, file in (("run", "run.json"), ("manifest", "bundle/manifest.json"), ("diagnose", "verdict.json")):
        document = json.loads((jobs[kind].out / file).read_text(), parse_constant=pytest.fail)
        jsonschema.Draft202012Validator(schema(name)).validate(document)


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_is_read_or_left_aside_in_silence(jobs: Mapping[str, Done], kind: str) -> None:
    sources = jobs[kind].document("verdict.json")["coverage"]["sources"]
    troubled = [s for s in sources if s["quality"] in ("unusable", "partial")]
    assert not troubled
    unknown = {s["path"] for s in sources if s["quality"] == "ignored" and "not a format" in s["note"]}
    assert not unknown


def test_the_culprit_is_found_with_all_of_that_beside(jobs: Mapping[str, Done]) -> None:
    for kind in KINDS:
        assert jobs[kind].verdict["culprits"]["ranks"] == [1], (kind, jobs[kind].verdict["summary"])


@pytest.mark.parametrize("rank", [0, 1])
def test_connections_by_the_rank_itself(jobs: Mapping[str, Done], rank: int) -> None:
    rows = text(jobs["idle"], f"host/sockets.rank_{rank}.txt")
    assert rows.startswith("State ")
    assert re.search(r"^ESTAB .*\n\t .* rto:\d+ rtt:[\d.]+/[\d.]+ .* lastrcv:\d+ lastack:\d+", rows, re.MULTILINE)


@pytest.mark.parametrize("kind", ["stop", "held"])
def test_connections_of_one_that_can_not_answer(jobs: Mapping[str, Done], kind: str) -> None:
    rows = text(jobs[kind], "host/sockets.rank_1.txt")
    assert re.search(r"^ESTAB +\d+ +\d+ +\S+:\d+ +\S+:\d+", rows, re.MULTILINE)
    other = text(jobs[kind], "host/sockets.rank_0.txt")
    ends = {tuple(line.split()[3:5]) for line in rows.splitlines() if line.startswith("ESTAB")}
    assert any((peer, here) in ends for here, peer in
               (line.split()[3:5] for line in other.splitlines() if line.startswith("ESTAB")))  # fmt: skip


def test_the_network_at_the_start_and_now(jobs: Mapping[str, Done]) -> None:
    found = text(jobs["idle"], f"host/net.{network.namespace()}.txt")
    moments = re.findall(r"^== (start|now) (\S+) ==$", found, re.MULTILINE)
    assert [name for name, _ in moments] == ["start", "now"]
    assert moments[0][1] < moments[1][1]
    assert found.count(": lo: <LOOPBACK") == found.count("\nTcp: RtoAlgorithm") == 2


def test_the_kernel_log_since_the_start(jobs: Mapping[str, Done]) -> None:
    gaps = {gap["what"]: gap["why"] for gap in missing(jobs["idle"])}
    if "kernel log" in gaps:
        assert gaps["kernel log"]
    else:
        assert text(jobs["idle"], "host/kernel_log.txt").startswith("# kernel log of ")


@NEEDS_SPY
def test_the_stack_of_a_stopped_rank(jobs: Mapping[str, Done]) -> None:
    assert "capture_job.py" in text(jobs["stop"], "stacks/rank_1.txt")


@NEEDS_SPY
def test_frames_of_c_of_the_one_that_others_wait_for(jobs: Mapping[str, Done]) -> None:
    if any(gap["what"] == "native stacks" and tools.NO_ANSWER in gap["why"] for gap in missing(jobs["idle"])):
        pytest.skip("py-spy had no time: this machine is too busy")
    stack = text(jobs["idle"], "stacks/rank_1.native.txt")
    assert re.search(r"clock_nanosleep|time_sleep|select", stack), stack
    assert "go_wrong" in stack
    assert "stacks/rank_1.native.txt" not in jobs["stop"].files, "and who is stopped is left so"


def test_a_held_interpreter_and_its_worker_server(jobs: Mapping[str, Done]) -> None:
    job = jobs["held"]
    (file,) = [f for f in job.document("bundle/manifest.json")["files"] if f["path"] == "dumps/rank_1"]
    assert file["note"] == "by its worker server"
    dump = json.loads(text(job, "dumps/rank_1"))
    assert dump["pg_status"]["0"]["last_enqueued_collective"] == "20"


def test_the_agents_error_file_and_logs(jobs: Mapping[str, Done]) -> None:
    job = jobs["raise"]
    assert "ValueError: a bad sample" in json.loads(text(job, "logs/rank_1.error.json"))["message"]["message"]
    assert "rank 1 trains" in text(job, "logs/rank_1.stdout.log")
    assert "rank 0 trains" in text(job, "logs/rank_0.stdout.log")
    assert "ValueError: a bad sample" in text(job, "logs/rank_1.error.txt")
    assert job.verdict["cause"] == "rank-exception"


def test_ras_of_this_job(jobs: Mapping[str, Done]) -> None:
    report = json.loads(text(jobs["stop"], "ras/status.json"))
    pids = [rank["pid"] for rank in report["communicators"][0]["ranks"]]
    ours = [row["pid"] for row in jobs["stop"].document("bundle/last_words.json")["processes"]]
    assert set(pids) & set(ours)


def test_ras_of_another_job(jobs: Mapping[str, Done]) -> None:
    assert not any(path.startswith("ras/") for path in jobs["held"].files)
    (gap,) = [gap for gap in missing(jobs["held"]) if gap["what"] == "nccl ras"]
    assert "another job answered (processes 1, 2)" in gap["why"]


def test_nobody_speaks_ras(jobs: Mapping[str, Done]) -> None:
    (gap,) = [gap for gap in missing(jobs["idle"]) if gap["what"] == "nccl ras"]
    assert "nobody listens at 127.0.0.1:" in gap["why"]


def test_the_time_before(jobs: Mapping[str, Done]) -> None:
    rows = [json.loads(line) for line in text(jobs["idle"], "history.jsonl").splitlines()]
    assert {row["rank"] for row in rows} == {0, 1}
    last = next(row for row in reversed(rows) if row["rank"] == 1)
    assert set(last) == {"time", "rank", "pid", "phase", "step", "issued", "completed", "waiting", "cpu_s",
                         "memory_bytes", "place", "gpu"}  # fmt: skip
    assert last["issued"] == 20
    assert last["memory_bytes"] > 10 << 20
    assert last["place"].endswith("go_wrong")


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_gdb_on_request(tmp_path: Path) -> None:
    from whichrank.run.watch.collect import collect

    code = "import time; print('ready', flush=True); time.sleep(60)"
    environ = {**watched.environment(), "RANK": "0", "WORLD_SIZE": "1"}
    outer = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    rank = subprocess.Popen([sys.executable, "-c", outer, code], env=environ, stdout=-1, start_new_session=True)
    try:
        assert rank.stdout is not None
        rank.stdout.readline()
        collect(rank.pid, tmp_path / "bundle", gdb=True)
        shown = (tmp_path / "bundle/stacks/rank_0.gdb.txt").read_text()
        state = Path(f"/proc/{rank.pid}/stat").read_text().rpartition(")")[2].split()[0]
    finally:
        os.killpg(rank.pid, signal.SIGKILL)
        rank.wait()
    assert "Thread 1" in shown
    assert state == "S", "it goes on"
