from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.conftest import command_environment
from whichrank.fleet.local import FEW_ITEMS, LITTLE_BYTES, Failure, map_ordered, map_threads

MANY = list(range(FEW_ITEMS * 4))


def where(_item: int) -> int:
    return os.getpid()


def test_results_come_in_the_order_of_the_items():
    def slow_first(item: int) -> int:
        time.sleep(0.05 if item < 2 else 0)
        return item * item

    assert map_ordered(slow_first, MANY, jobs=3) == [item * item for item in MANY]


def test_work_is_done_in_several_processes():
    def slow(_item: int) -> int:
        time.sleep(0.01)
        return os.getpid()

    found = set(map_ordered(slow, MANY, jobs=2))
    assert len(found) == 2
    assert os.getpid() not in found


@pytest.mark.parametrize(
    ("items", "options"),
    [
        (MANY[: FEW_ITEMS - 1], {"jobs": 4}),
        (MANY, {"jobs": 1}),
        (MANY, {"jobs": 4, "size": lambda _: 1}),
        ([], {"jobs": 4}),
    ],
)
def test_small_work_stays_here(items, options):
    assert set(map_ordered(where, items, **options)) <= {os.getpid()}


def test_large_work_is_shared_out():
    assert os.getpid() not in map_ordered(where, MANY, jobs=2, size=lambda _: LITTLE_BYTES)


@pytest.mark.parametrize("jobs", [1, 3])
def test_an_item_that_raises_costs_only_its_own_result(jobs):
    def picky(item: int) -> int:
        if item == 5:
            raise ValueError("five")
        return item

    results = map_ordered(picky, MANY, jobs=jobs)
    assert results[5] == Failure("ValueError: five")
    assert [r for r in results if r != results[5]] == [item for item in MANY if item != 5]


def test_a_killed_worker_costs_only_its_item():
    def fragile(item: int) -> int:
        if item in (0, 7, 30):
            os.kill(os.getpid(), signal.SIGKILL)
        if item == 8:
            os._exit(3)
        return item

    results = map_ordered(fragile, MANY, jobs=3)
    lost = [index for index, result in enumerate(results) if isinstance(result, Failure)]
    assert lost == [0, 7, 8, 30]
    assert results[7] == Failure("the process reading it was ended by SIGKILL (out of memory?)", crashed=True)
    assert results[8] == Failure("the process reading it ended with code 3", crashed=True)


def test_a_result_that_cannot_be_sent_is_a_failure():
    results = map_ordered(lambda item: (lambda: item) if item == 3 else item, MANY, jobs=2)
    assert isinstance(results[3], Failure)
    assert not results[3].crashed
    assert results[4] == 4


def test_large_results_arrive():
    results = map_ordered(lambda item: bytes([item]) * 3_000_000, MANY, jobs=2)
    assert [result[0] for result in results] == MANY


def test_progress_is_told():
    told: list[tuple[int, int]] = []
    map_ordered(where, MANY, jobs=2, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (len(MANY), len(MANY))
    assert [done for done, _ in told] == sorted(done for done, _ in told)


SLEEPERS = """
import os, sys, time
from whichrank.fleet.local import map_ordered
def work(item):
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(60)
try:
    map_ordered(work, list(range(20)), jobs=3)
except KeyboardInterrupt:
    sys.exit(130)
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_children_end_with_the_parent(sent):
    """Ctrl-C ends children at once; a killed parent's children end with the item they have."""
    work = SLEEPERS if sent == signal.SIGINT else SLEEPERS.replace("time.sleep(60)", "time.sleep(0.5)")
    parent = subprocess.Popen(
        [sys.executable, "-c", work],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=command_environment(),
    )
    children = [int(parent.stdout.readline()) for _ in range(3)]
    parent.send_signal(sent)
    assert parent.wait(timeout=120) == (130 if sent == signal.SIGINT else -signal.SIGKILL)
    end = time.monotonic() + 40
    while any(map(alive, children)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, children))
    parent.stdout.close()
    assert parent.stderr.read() == ""
    parent.stderr.close()


def test_threads_keep_the_order_and_one_failure_costs_nobody_else():
    def square(number):
        if number == 7:
            raise ValueError("seven")
        return number * number

    results = map_threads(square, range(50), jobs=4)
    assert results[:7] == [0, 1, 4, 9, 16, 25, 36]
    assert results[7] == Failure("ValueError: seven")
    assert results[49] == 49 * 49
    assert map_threads(square, []) == []


def test_threads_tell_how_far_they_are_in_the_thread_that_asked():
    told = []
    here = threading.current_thread()
    map_threads(
        str, range(30), jobs=3, progress=lambda done, total: told.append((done, total, threading.current_thread()))
    )
    assert {thread for *_, thread in told} <= {here}
    assert all(0 < done <= total == 30 for done, total, _ in told)
    one = []
    map_threads(str, range(3), jobs=1, progress=lambda done, total: one.append((done, total)))
    assert one == [(1, 3), (2, 3), (3, 3)]


def test_an_interrupt_ends_the_threads():
    began, main = threading.Event(), threading.current_thread()
    before = threading.enumerate()
    done = []

    def work(number):
        if threading.current_thread() is main:
            began.wait(10)
            raise KeyboardInterrupt
        began.set()
        time.sleep(0.001)
        done.append(number)

    with pytest.raises(KeyboardInterrupt):
        map_threads(work, range(100_000), jobs=2)
    for thread in threading.enumerate():
        if thread not in before:
            thread.join(5)
    assert len(done) < 100_000
