"""The client of NCCL's RAS, against a process that answers as NCCL did."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from whichrank.evidence.collectors import ras
from whichrank.evidence.readers import nccl_ras

SERVER = Path(__file__).with_name("ras_server.py")


@contextmanager
def served(kind: str, address: str = "127.0.0.1:0", pids: tuple[int, ...] = (480, 479)):
    child = subprocess.Popen([sys.executable, SERVER, kind, address, *map(str, pids)], stdout=-1, text=True)
    try:
        assert child.stdout is not None
        yield f"127.0.0.1:{child.stdout.readline().strip()}", child.pid
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(("kind", "form"), [("json", "json"), ("text", "txt")])
def test_the_report_in_the_form_that_this_nccl_has(kind, form):
    with served(kind) as (address, _):
        answer = ras.ask(address)
    assert (answer.form, answer.why) == (form, "")
    assert answer.pids() == {479, 480}
    (report,) = nccl_ras.scan(answer.data, "status").records
    assert report.complete
    assert nccl_ras.sniff(answer.data[:4096], f"status.{form}")


def test_nobody_is_there():
    answer = ras.ask(ras.own_address({})[ras.VARIABLE])
    assert not answer.data
    assert "nobody listens" in answer.why


@pytest.mark.parametrize("kind", ["mute", "other"])
def test_somebody_who_does_not_speak_it(kind):
    with served(kind) as (address, _):
        began = time.monotonic()
        answer = ras.ask(address)
    assert not answer.data
    assert answer.why
    assert time.monotonic() - began < 5 * ras.LIMIT_S


@pytest.mark.parametrize("address", ["", "host", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:x"])
def test_no_address(address):
    assert "not an address" in ras.ask(address).why


def test_what_the_user_set_stays():
    assert ras.own_address({"NCCL_RAS_ADDR": "localhost:1"}) == {}
    address = ras.own_address({})["NCCL_RAS_ADDR"]
    assert address.startswith("127.0.0.1:")


def test_who_listens():
    with served("text") as (address, pid):
        assert not ras.foreign(address, {pid})
        assert ras.foreign(address, {os.getpid()}), "this process is not the one that listens"
        with served("text", address) as (_, second):
            assert ras.foreign(address, {pid}), "two listen, and either may answer"
            assert not ras.foreign(address, {pid, second})
