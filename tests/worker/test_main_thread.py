"""Where the main thread is, whether it moves, and what its functions say about the work."""

from __future__ import annotations

import gc
import http.client
import os
import pdb  # noqa: T100 - looked at from outside
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress

import pytest

from whichrank.worker.main_thread import ORDINARY, MainThread

SECOND = 1_000_000_000


def seen_meanwhile(call: Callable[[], object], looks: int = 4) -> tuple[MainThread, list[dict[str, object]]]:
    """What a look from another thread finds while this thread is in a call."""
    watcher, found = MainThread(), []
    done = threading.Event()

    def look() -> None:
        time.sleep(0.1)
        for number in range(1, looks + 1):
            found.append(watcher.look(number * SECOND))
            time.sleep(0.05)
        done.set()

    thread = threading.Thread(target=look)
    thread.start()
    call()
    thread.join()
    assert done.is_set()
    return watcher, found


def save_checkpoint():
    time.sleep(0.5)


def load_batch():
    time.sleep(0.5)


def train_and_evaluate():
    load_batch()


def turn_round():
    until = time.monotonic() + 0.5
    count = 0
    while time.monotonic() < until:
        for _ in range(1000):
            count += 1


@pytest.mark.parametrize(("call", "work"), [(save_checkpoint, "checkpoint"), (load_batch, "")])
def test_names_say_what_takes_long(call, work):
    _, found = seen_meanwhile(call)
    assert {each["work"] for each in found} == {work}
    assert str(found[0]["place"]).endswith(call.__name__)


def test_a_name_on_the_loop_itself_means_nothing():
    watcher, found = seen_meanwhile(train_and_evaluate, looks=1)
    assert found[0]["work"] == "evaluation"
    for _ in range(ORDINARY):
        watcher.forget(SECOND)
    threading.Thread(target=lambda: (time.sleep(0.1), found.append(watcher.look(2 * SECOND)))).start()
    train_and_evaluate()
    assert found[1]["work"] == ""


def test_who_sleeps_is_still():
    _, found = seen_meanwhile(load_batch)
    assert {each["still_ns"] for each in found} == {SECOND}


def test_who_turns_round_is_not_still_and_comes_to_nothing_new():
    gc.disable()
    try:
        _, found = seen_meanwhile(turn_round)
    finally:
        gc.enable()
    assert found[-1]["still_ns"] == 4 * SECOND
    assert int(str(found[-1]["fresh_ns"])) < 4 * SECOND


def test_progress_begins_anew():
    watcher, found = seen_meanwhile(load_batch)
    watcher.forget(9 * SECOND)
    assert watcher.fresh_ns == 9 * SECOND
    assert found


def test_a_main_thread_that_waits_for_an_upload_of_another_thread():
    """Real threads, sockets and urllib: the server answers when it is asked twice."""
    server = socket.create_server(("127.0.0.1", 0))
    upload = threading.Thread(target=fetch, args=(server.getsockname()[1],))
    upload.start()
    connection, _ = server.accept()

    def wait_for_it():
        threading.Timer(0.5, connection.close).start()
        upload.join()

    _, found = seen_meanwhile(wait_for_it)
    server.close()
    assert {each["work"] for each in found[:2]} == {"storage"}


def fetch(port: int) -> None:
    with suppress(OSError, http.client.HTTPException):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)


def test_a_main_thread_that_waits_for_an_idle_thread():
    idle, seen = threading.Event(), threading.Event()
    thread = threading.Thread(target=idle.wait, args=(5,))
    thread.start()
    threading.Timer(0.6, idle.set).start()
    _, found = seen_meanwhile(lambda: seen.wait(0.5))
    thread.join()
    assert {each["work"] for each in found} == {""}


def test_a_debugger_is_known():
    """pdb reads its commands from a pipe that says nothing for a while."""
    read, write = os.pipe()
    with open(read) as commands, open(write, "w") as person, open(os.devnull, "w") as shown:  # noqa: PTH123
        threading.Timer(0.5, lambda: (person.write("continue\n"), person.flush())).start()
        _, found = seen_meanwhile(
            lambda: pdb.Pdb(stdin=commands, stdout=shown, nosigint=True, readrc=False).set_trace()
        )
        sys.settrace(None)
    assert "debugger" in {each["work"] for each in found}
