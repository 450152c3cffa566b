"""One command on many hosts: slow, silent, talkative and missing ones cost only themselves."""

from __future__ import annotations

import sys
import time

from whichrank.fleet.engines import Engine
from whichrank.fleet.fetch import Bounds, fetch

PROGRAM = """
import sys, time
host, given = sys.argv[1], sys.stdin.read()
if host == "slow": time.sleep(60)
if host == "dead": sys.exit("no such luck")
if host == "loud":
    while True: sys.stdout.write("x" * 65536)
print(host, given)
"""


def engine(*hosts):
    return Engine("test", hosts, lambda host, command: [*command, host] if host != "none" else ["/no/such/program"])


def ask(folder, *hosts, **bounds):
    return fetch(engine(*hosts), [sys.executable, "-c", PROGRAM], b"hello", folder, Bounds(**bounds))


def test_every_host_gets_the_input_and_its_own_file(tmp_path):
    found = ask(tmp_path, "a", "b", at_once=1)
    assert [answer.path.read_text() for answer in found.values()] == ["a hello\n", "b hello\n"]
    assert all(answer.code == 0 and not answer.why for answer in found.values())
    assert all(answer.started_ns < answer.first_ns for answer in found.values())


def test_a_bad_host_costs_only_itself(tmp_path):
    began = time.monotonic()
    found = ask(tmp_path, "slow", "dead", "loud", "none", "good", limit_s=5.0, most=1 << 20)
    assert time.monotonic() - began < 30
    assert found["good"].path.read_text() == "good hello\n"
    assert found["slow"].why == "no answer within 5 s"
    assert found["dead"].why == "no such luck"
    assert "more than 1 MiB" in found["loud"].why
    assert found["loud"].path.stat().st_size <= 1 << 20
    assert "can't be started" in found["none"].why
