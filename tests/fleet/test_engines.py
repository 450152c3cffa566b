"""Engines: hosts from words, files and programs, and the helpers that run there."""

from __future__ import annotations

import os
import sys
import time

import pytest

from whichrank.fleet.engines import Engine, here, kubernetes, slurm, ssh
from whichrank.fleet.host_helpers import host_helpers
from whichrank.model.errors import UsageError

ECHO = """
import json, sys
print("Welcome to this host")
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "die":
        sys.exit("out of luck")
    if request["do"] == "sleep":
        import time; time.sleep(600)
    print(json.dumps({"id": request["id"], "result": request["do"]}), flush=True)
"""


def engine(*hosts):
    return Engine("test", hosts, lambda host, command: [*command, host])


def test_ranges_of_names():
    assert ssh.expand("node[01-03,7],login") == ["node01", "node02", "node03", "node7", "login"]
    assert ssh.expand("a[1-2]b[3-4]") == ["a1b3", "a1b4", "a2b3", "a2b4"]
    assert ssh.expand("") == []


def test_hostfiles(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# cluster\nnode1 slots=8\nnode2:4\n\nnode[3-4]  # spare\n")
    assert ssh.read_hostfile(file) == (["node1", "node2", "node3", "node4"], {"node1": 8, "node2": 4})
    file.write_text("# nobody\n")
    with pytest.raises(UsageError, match="names no host"):
        ssh.read_hostfile(file)


def test_ssh_quotes_the_command_and_refuses_odd_names():
    command = ssh.engine(["user@node1"], ssh="ssh -p 2222").wrap("user@node1", ["python", "-c", "print('a b')"])
    assert command[:3] == ["ssh", "-p", "2222"]
    assert command[-2:] == ["user@node1", "python -c 'print('\"'\"'a b'\"'\"')'"]
    assert ssh.engine(["user@node1"]).address("user@node1") == "node1"
    for name in ("-oProxyCommand=x", "a b", "$(x)"):
        with pytest.raises(UsageError):
            ssh.engine([name])


def test_pods_by_labels(tmp_path, monkeypatch):
    program = tmp_path / "kubectl"
    program.write_text(
        '#!/bin/sh\necho \'{"items": [{"metadata": {"name": "w-0"},'
        ' "status": {"phase": "Running", "podIP": "10.1.0.4"}},'
        ' {"metadata": {"name": "w-1"}, "status": {"phase": "Pending"}}]}\'\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = kubernetes.engine("train/job-name=llama", "main")
    assert found.hosts == ("w-0",)
    assert found.address("w-0") == "10.1.0.4"
    command = found.wrap("w-0", ["true"])
    assert command[:3] == ["kubectl", "--namespace", "train"]
    assert command[-4:] == ["--container", "main", "--", "true"]


def test_outside_of_slurm_it_says_so(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(UsageError, match="allocation"):
        slurm.engine()


def test_helpers_answer_and_a_login_banner_is_passed_over():
    with host_helpers(engine("a", "b"), [sys.executable, "-c", ECHO]) as everyone:
        assert {h: r.result for h, r in everyone.ask_all({"do": "x"}, 20).items()} == {"a": "x", "b": "x"}


def test_who_dies_or_sleeps_is_left_and_the_others_go_on():
    with host_helpers(engine("a", "b", "c"), [sys.executable, "-c", ECHO]) as everyone:
        everyone.ask_all({"do": "x"}, 20)
        began = time.monotonic()
        replies = everyone.ask({"a": {"do": "die"}, "b": {"do": "sleep"}, "c": {"do": "fine"}}, 2.0)
        assert time.monotonic() - began < 100
        assert replies["a"].why == "out of luck"
        assert "no answer within" in replies["b"].why
        assert replies["c"].result == "fine"
        assert everyone.hosts == ["c"]
        assert everyone.ask({"a": {"do": "x"}}, 1.0)["a"].why == "out of luck"


def test_nobody_waits_long_for_one_that_never_answers():
    """The others answered at once: what is left gets the shorter time."""
    with host_helpers(engine("a", "b", "c"), [sys.executable, "-c", ECHO]) as everyone:
        everyone.ask_all({"do": "x"}, 20)
        began = time.monotonic()
        replies = everyone.ask({"a": {"do": "x"}, "b": {"do": "x"}, "c": {"do": "sleep"}}, 300.0, 0.5)
        assert time.monotonic() - began < 100
        assert "no answer within" in replies["c"].why
        assert everyone.hosts == ["a", "b"]


def test_a_command_that_is_not_there():
    with host_helpers(engine("a"), ["/no/such/program"]) as everyone:
        assert "can't be started" in everyone.lost["a"]


def test_this_host():
    assert len(here.engine().hosts) == 1
