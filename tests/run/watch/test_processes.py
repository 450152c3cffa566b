"""Which processes of a watched job are its ranks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from whichrank.evidence.collectors import processes
from whichrank.model import last_words as layout
from whichrank.model.last_words import Words
from whichrank.run.watch.job_processes import JobProcesses, Member

NOWHERE = Path("/nonexistent")


def job_processes(*words: Words) -> JobProcesses:
    return JobProcesses(NOWHERE, {str(each.pid): Member(each, str(each.pid)) for each in words})


@pytest.mark.parametrize(
    ("parent", "child", "rank_is"),
    [
        # A data loader's worker that was forked right after the group was made seems to have joined itself.
        (layout.JOINED, layout.JOINED, 100),
        (layout.JOINED, layout.IMPORTED, 100),
        # A wrapper that starts the training below it never joins.
        (layout.STARTED, layout.JOINED, 101),
        (layout.IMPORTED, layout.JOINED, 101),
    ],
)
def test_of_parent_and_child_with_one_number(parent, child, rank_is):
    found = job_processes(
        Words(pid=100, parent=1, rank=2, world=4, phase=parent, started_ns=1),
        Words(pid=101, parent=100, rank=2, world=4, phase=child, started_ns=2),
    )
    assert [member.words.pid for member in found.ranks()] == [rank_is]


@pytest.mark.parametrize(
    ("holder", "child", "rank_is"),
    [
        ((layout.JOINED, 5), (layout.IMPORTED, 0), 100),
        ((layout.IMPORTED, 0), (layout.IMPORTED, 0), 100),
        ((layout.ENDED, 5), (layout.IMPORTED, 0), 100),
        ((layout.FAILED, 0), (layout.ENDED, 0), 100),
        # It says itself that it joined: what it was started by is a wrapper, unless that has joined too.
        ((layout.STARTED, 0), (layout.JOINED, 3), 101),
        ((layout.JOINED, 5), (layout.JOINED, 3), 100),
    ],
)
def test_what_a_rank_has_detached_is_no_rank(holder, child, rank_is):
    """A shell between them, or no parent any more: only its own word tells whose it is."""
    found = job_processes(
        Words(pid=100, parent=9, rank=2, world=4, phase=holder[0], enqueued=holder[1], started_ns=1),
        Words(pid=101, parent=1, rank=2, world=4, phase=child[0], enqueued=child[1], flags=layout.BELOW, started_ns=2),
    )
    assert [member.words.pid for member in found.ranks()] == [rank_is]


def test_of_two_programs_of_one_task_the_one_with_torch_is_the_rank():
    found = job_processes(
        Words(pid=100, parent=9, rank=2, world=4, phase=layout.JOINED, started_ns=1),
        Words(pid=101, parent=9, rank=2, world=4, phase=layout.STARTED, started_ns=2),
    )
    assert [member.words.pid for member in found.ranks()] == [100]


def test_ranks_of_one_launcher_are_all_ranks():
    launcher = Words(pid=9, parent=1, rank=-1, phase=layout.IMPORTED, started_ns=1)
    ranks = [Words(pid=100 + r, parent=9, rank=r, world=2, phase=layout.JOINED, started_ns=2 + r) for r in range(2)]
    assert [member.rank for member in job_processes(launcher, *ranks).ranks()] == [0, 1]


WORKS = """
import threading, time
def work():
    begin.wait()
    while time.thread_time() < 0.5:
        pass
    with open("/dev/null", "wb") as stream:
        stream.write(bytes(1 << 20))
    print("done", flush=True)
    time.sleep(600)
begin = threading.Event()
thread = threading.Thread(target=work, daemon=True)
thread.start()
print(thread.native_id, flush=True)
input()
begin.set()
input()
"""


def test_what_our_thread_does_is_no_work_of_the_rank() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", WORKS], stdin=-1, stdout=-1, text=True)
    try:
        watched = [Member(Words(pid=child.pid, thread=own), "") for own in (0, int(child.stdout.readline()))]
        for member in watched:
            member.measure(processes.everybody(), 0.0)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "done\n"
        for member in watched:
            member.measure(processes.everybody(), 2.0)
    finally:
        child.kill()
        child.communicate()
    assert [(member.busy, member.transfers) for member in watched] == [(True, True), (False, False)]
