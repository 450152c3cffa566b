"""The ranks of a benchmark end in time: those that hang, fail, outlive their supervisor, or never leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import command_environment
from tests.run.watched import free_port
from whichrank.fleet.engines import Engine
from whichrank.flows.bench import job
from whichrank.flows.bench.job import Limits
from whichrank.flows.bench.measure import Plan, bench, measure
from whichrank.model.errors import UnreadableError

pytestmark = pytest.mark.job
SAY = "import json, os, sys, time\ndef say(**line): print(json.dumps(line), flush=True)\n"
RESULT = 'say(collective="all_reduce", bytes=4, dtype="float32", ranks=2, time_us=1.0, algbw_gbs=1, busbw_gbs=1)\n'


def command(program, count=2, first=0):
    """Ranks below their supervisor, as on every host."""
    ranks = [sys.executable, "-m", "whichrank.worker.ranks", str(first), str(count), "2", "127.0.0.1", "1", "--"]
    return ["env", f"PYTHONPATH={command_environment()['PYTHONPATH']}", *ranks, sys.executable, "-c", SAY + program]


def listen(programs, limits):
    began = time.monotonic()
    with job.started({name: command(program, 1, n) for n, (name, program) in enumerate(programs.items())}) as hosts:
        told = job.listen(hosts, limits)
    return told, time.monotonic() - began


def alive(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_a_rank_that_hangs_costs_the_time_between_two_words():
    program = 'say(at=["all_reduce", 1024]); time.sleep(600)'
    told, took = listen({"node1": program}, Limits(silence_s=1))
    assert told.stopped == "stuck in all_reduce of 1024 bytes: no answer for 1 s"
    assert took < 100


def test_a_rank_that_says_nothing_at_all():
    told, _ = listen({"node1": "time.sleep(600)"}, Limits(start_s=0.5))
    assert told.stopped == "stuck before the first collective: no answer for 0 s"


def test_the_whole_run_has_a_limit():
    program = 'say(at=["barrier", 0])\nwhile True: time.sleep(0.05); ' + RESULT
    told, _ = listen({"node1": program}, Limits(whole_s=1))
    assert told.stopped == "stopped after 1 s, in barrier"
    assert told.measured


def test_who_fails_is_named_and_ends_the_others():
    programs = {"node1": "time.sleep(600)", "node2": 'sys.exit("RuntimeError: no such interface eth7")'}
    told, took = listen(programs, Limits())
    assert told.stopped == (
        "the ranks on node2 failed before the first collective: RuntimeError: no such interface eth7"
    )
    assert took < 100


def test_ranks_that_do_not_leave_keep_their_results(monkeypatch):
    monkeypatch.setattr(job, "_LEAVE_S", 0.5)
    told, took = listen({"node1": RESULT + "say(done=True); time.sleep(600)"}, Limits())
    assert (told.measured, told.stopped) == (True, "")
    assert took < 100


def test_nothing_stays_behind(monkeypatch):
    """Neither ranks that ignore SIGTERM, nor those whose supervisor was killed."""
    monkeypatch.setattr(job, "_END_S", 1.0)
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); say(pid=os.getpid()); time.sleep(600)"
    with job.started({"node1": command(stubborn), "node2": command(stubborn, first=2)}) as hosts:
        told = job.listen(hosts[:1], Limits(silence_s=0.5))
        hosts[0].process.kill()
    (pid,) = [line["pid"] for line in told.lines if "pid" in line]
    deadline = time.monotonic() + 60
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def test_a_rank_that_stands_still_in_a_real_collective():
    """Rank 1 is stopped after the first result: what was measured counts, and the collective is named."""
    pytest.importorskip("torch")
    stopped = []

    mark = b"WR_TEST=%d" % os.getpid()

    def stop_the_last(_result):
        for folder in Path("/proc").iterdir() if not stopped else ():
            with suppress(OSError, IndexError):
                environment = (folder / "environ").read_bytes().split(b"\0")
                worker = b"worker.bench" in (folder / "cmdline").read_bytes().split(b"\0")[2]
                if worker and mark in environment and b"RANK=1" in environment:
                    os.kill(int(folder.name), signal.SIGSTOP)
                    stopped.append(folder.name)

    environment = [f"PYTHONPATH={command_environment()['PYTHONPATH']}", f"WR_TEST={os.getpid()}"]
    engine = Engine("local", ("here",), lambda _host, words: ["env", *environment, *words])
    plan = Plan(("all_reduce", "broadcast"), (1024, 4096), "gloo", seconds=0.01, limits=Limits(silence_s=2))
    run = measure(engine, plan, sys.executable, stop_the_last)
    assert stopped
    assert run.results
    # Gloo gives up just before the silence is long enough; which of the two is heard first a busy host decides.
    said = run.stopped or str(run.failures)
    assert " in all_reduce of 4096 bytes" in said or " in broadcast of" in said or "Timed out" in said
    told = bench(run)
    assert [finding.code for finding in told.findings if finding.code == "BNCH106"]
    assert told.coverage.sources[0].quality == "partial"


def test_no_result_is_an_error():
    engine = Engine("local", ("here",), lambda _host, _words: ["sh", "-c", "echo 'ssh: connect refused' >&2; exit 255"])
    with pytest.raises(UnreadableError, match="ssh: connect refused"):
        measure(engine, Plan(), sys.executable)


def test_copies_of_any_launcher():
    """Two copies with RANK set: rank 0 tells, the other one says nothing."""
    pytest.importorskip("torch")
    words = ("bench", "--backend", "gloo", "--collective", "all_reduce", "--sizes", "4K", "--seconds", "0.02",
             "--quiet", "--format", "json")  # fmt: skip
    port = str(free_port())

    def copy(rank):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        return subprocess.Popen(
            [sys.executable, "-m", "whichrank", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**command_environment(), **own, "MASTER_PORT": port},
        )  # fmt: skip

    copies = [copy(rank) for rank in range(2)]
    said = [one.communicate(timeout=100) for one in copies]
    assert [one.returncode for one in copies] == [0, 0], said
    assert json.loads(said[0][0])["results"][0]["ranks"] == 2
    assert said[1][0] == ""
