"""Single steps of a capture: each bounded, each failing alone."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from whichrank.evidence.bundle import Bundle
from whichrank.evidence.collectors import processes, worker_server
from whichrank.model.last_words import JOINED, Words
from whichrank.run.watch import samples
from whichrank.run.watch.capture import keep_history, step
from whichrank.run.watch.capture.aside import Aside
from whichrank.run.watch.capture.at_start import FABRIC, remember, started_s
from whichrank.run.watch.capture.dumps import dump_of
from whichrank.run.watch.capture.files import document, tail
from whichrank.run.watch.capture.logs import keep_errors, keep_output, places_of
from whichrank.run.watch.capture.network import keep_namespaces
from whichrank.run.watch.job_files import Torch
from whichrank.run.watch.job_processes import JobProcesses, Member
from whichrank.run.watch.samples import History
from whichrank.worker import network


def member(rank: int = 0, pid: int | None = None, **more: object) -> Member:
    pid = pid or os.getpid()
    row = processes.stat(pid)
    words = Words(pid=pid, start_ticks=row.start_ticks if row else 1, rank=rank, local_rank=rank, world=2, phase=JOINED)
    return Member(words, f"{pid}.{rank}", **more)


@pytest.fixture
def bundle(tmp_path):
    return Bundle(tmp_path / "bundle")


@pytest.fixture
def job_processes(tmp_path):
    folder = tmp_path / "private"
    folder.mkdir()
    return JobProcesses(folder)


def gaps(bundle: Bundle) -> dict[str, str]:
    return {gap.what: gap.why for gap in bundle.manifest.missing}


def test_a_step_that_fails_is_told(bundle):
    def broken(text: str) -> None:
        raise ValueError(text)

    step(bundle, "something", broken, "of no use", rank=3)
    (gap,) = bundle.manifest.missing
    assert (gap.what, gap.why, gap.rank) == ("something", "ValueError: of no use", 3)


def test_what_takes_too_long_is_left(bundle):
    began = time.monotonic()
    slow = Aside(lambda: time.sleep(60))
    with pytest.raises(TimeoutError):
        slow.result(0.2)
    assert time.monotonic() - began < 30
    with pytest.raises(ZeroDivisionError):
        Aside(lambda: 1 // 0).result(5)
    assert Aside(lambda: 7).result(5) == 7


def test_when_a_job_started():
    assert started_s([]) == pytest.approx(time.time(), abs=5)
    assert time.time() - 24 * 3600 < started_s([member()]) <= time.time() + 1


def test_the_start_is_remembered_where_there_is_something(job_processes):
    remember(job_processes.folder).result(30)
    has_adapter = any(Path("/sys/class/infiniband").glob("*/ports/*"))
    assert (job_processes.folder / FABRIC).exists() is has_adapter


def test_lines_from_the_end(tmp_path):
    path = tmp_path / "log"
    path.write_text("one\ntwo\nthree\n")
    assert tail(path, 100) == b"one\ntwo\nthree\n"
    assert tail(path, 8) == b"three\n"
    assert tail(path, 100, start=4) == b"two\nthree\n"
    assert tail(tmp_path / "none", 100) == b""


@pytest.mark.parametrize("text", ["", "[1]", "{", "null", "[" * 100_000])
def test_documents_that_are_none(tmp_path, text):
    (tmp_path / "x").write_text(text)
    assert document(tmp_path / "x") == {}


def test_output_that_ranks_share_is_nobodys(bundle, job_processes, tmp_path):
    own, common, replaced = (tmp_path / name for name in ("stderr.log", "all.log", "gone.log"))
    for path in (own, common, replaced):
        path.write_text("before\nafter\n")

    def entry(path: Path) -> dict[str, object]:
        return {"path": str(path), "inode": path.stat().st_ino, "size": len("before\n")}

    ranks = [member(0), member(1)]
    told = {0: [entry(common), entry(own)], 1: [entry(common), {**entry(replaced), "inode": 1}, {"path": 5}, "x"]}
    for one in ranks:
        (job_processes.folder / f"{one.name}.places").write_text(json.dumps({"output": told[one.rank]}))
    keep_output(job_processes, bundle, ranks)
    found = {file.path: file.rank for file in bundle.manifest.files}
    assert found == {"logs/rank_0.stderr.log": 0, "logs/output_1.log": None}
    assert (bundle.folder / "logs/rank_0.stderr.log").read_text() == "after\n", "only what this job wrote"


def test_an_error_file_of_the_agent(bundle, job_processes, tmp_path):
    one = member(1, alive=False)
    error = tmp_path / "error.json"
    error.write_text('{"message": {"message": "ValueError: x"}}')
    (job_processes.folder / f"{one.name}.places").write_text(json.dumps({"error_file": str(error)}))
    keep_errors(job_processes, bundle, one)
    assert [file.path for file in bundle.manifest.files] == ["logs/rank_1.error.json"]


def test_places_of_a_process_that_nobody_prepared(job_processes, tmp_path):
    import subprocess

    log = tmp_path / "rank.log"
    environ = {**os.environ, "TORCHELASTIC_ERROR_FILE": "/x/error.json"}
    with log.open("w") as stream:
        child = subprocess.Popen(["sleep", "60"], stdout=stream, env=environ)
    try:
        deadline = time.monotonic() + 10
        while processes.command(child.pid) != "sleep 60" and time.monotonic() < deadline:
            time.sleep(0.05)
        found = places_of(job_processes, member(0, child.pid))
    finally:
        child.kill()
        child.wait()
    assert found["error_file"] == "/x/error.json"
    assert {"path": str(log), "inode": log.stat().st_ino, "size": 0} in found["output"]


def test_networks_of_the_dead_are_kept_too(bundle, job_processes):
    (job_processes.folder / "net.4026.start").write_text("== start 2026-01-01T00:00:00.000Z ==\nTcp: A\nTcp: 1\n")
    (job_processes.folder / "net.4026.lost1").write_text("== now 2026-01-01T00:01:00.000Z ==\nTcp: A\nTcp: 2\n")
    keep_namespaces(job_processes, bundle, [member(0, alive=False)], "lost1")
    (file,) = bundle.manifest.files
    assert file.path == "host/net.4026.txt"
    assert (bundle.folder / file.path).read_text().count("Tcp:") == 4


def test_a_network_that_nobody_saw_at_the_start(bundle, job_processes):
    keep_namespaces(job_processes, bundle, [member(0)], "take1")
    text = (bundle.folder / f"host/net.{network.namespace()}.txt").read_text()
    assert text.startswith(f"# network namespace {network.namespace()} of ranks 0\n== now ")
    assert "nobody was there" in gaps(bundle)["network at the start"]


def test_a_worker_server_must_be_the_ranks_own(bundle, job_processes, tmp_path):
    path = tmp_path / "server"
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
        assert worker_server.dump(path, 1) == (b"", "the worker server there is of another process")
    assert "Connection refused" in worker_server.dump(path, 1)[1]
    assert "not this user's socket" in worker_server.dump(tmp_path, 1)[1]
    one = member(0)
    (job_processes.folder / f"{one.name}.places").write_text(json.dumps({"worker_server": str(path)}))
    dump_of(job_processes, bundle, one, "take1", Torch())
    assert gaps(bundle)["flight recorder"] == "it did not answer; its worker server: Connection refused"


def test_the_history_has_an_end(tmp_path, bundle, monkeypatch):
    monkeypatch.setattr(samples, "MOST", 1000)
    past, now_s = History(tmp_path), 1.0
    for _ in range(40):
        past.look(now_s, [member(0), member(1)])
        past.look(now_s + 1, [member(0)])
        now_s += samples.EVERY_S
    past.close()
    sizes = {path.name: path.stat().st_size for path in tmp_path.glob("history*")}
    assert set(sizes) == {"history.jsonl", "history.older.jsonl"}
    assert max(sizes.values()) < 2000
    keep_history(bundle, tmp_path)
    rows = [json.loads(line) for line in (bundle.folder / "history.jsonl").read_text().splitlines()]
    assert [row["rank"] for row in rows] == [0, 1] * (len(rows) // 2)
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    assert rows[-1]["cpu_s"] > 0
    assert rows[-1]["memory_bytes"] > 1 << 20
