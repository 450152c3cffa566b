"""N copies of one command: which of them stand for a host, and by which name."""

from __future__ import annotations

import socket
import sys
import threading

import pytest

from whichrank.fleet import copies
from whichrank.lab.setup import free_port
from whichrank.model.errors import UsageError


def copy(host, network, address):
    return copies._Copy(host, network, address, None)


def test_hosts_by_their_names():
    told = copies._named([copy("node1", "boot1/1", "node1"), copy("node2", "boot2/1", "10.0.0.2")])
    assert list(told) == ["node1", "node2"]


def test_hosts_that_share_a_name_by_their_addresses():
    same = [copy("localhost", f"boot{n}/1", f"10.0.0.{n}") for n in (1, 2, 3)]
    assert list(copies._named([*same, copy("node4", "boot4/1", "10.0.0.4")])) == [
        "10.0.0.1", "10.0.0.2", "10.0.0.3", "node4",
    ]  # fmt: skip


def test_whereabouts_are_one_line_and_stay_the_same():
    assert copies._whereabouts() == copies._whereabouts()
    assert "\n" not in " ".join(copies._whereabouts())


@pytest.fixture
def meeting(monkeypatch):
    """Rank 0 of two copies waits; gives the port and what it will have met."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    port, met = free_port(), []
    leader = threading.Thread(target=lambda: met.append(copies.lead([sys.executable, "-c", ""], port, 20)))
    leader.start()
    yield port, met, leader
    leader.join(30)
    everyone, idle = met[0]
    everyone.close()
    copies.say_end(idle)


def connected(port):
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=10)
        except ConnectionRefusedError:
            threading.Event().wait(0.02)
    raise AssertionError("rank 0 does not listen")


def test_strangers_are_not_copies(meeting):
    port, met, leader = meeting
    with connected(port) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        stranger.makefile("rb").readline()
        served = []
        assert copies.follow(served.append, port, 20) == 0
    leader.join(30)
    (_everyone, idle) = met[0]
    assert len(idle) == len(served) == 1  # the copy shares the host of rank 0
    served[0].close()


def test_a_program_that_has_the_port_is_not_rank_0(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(10)
        port = other.getsockname()[1]

        def answer():
            connection, _ = other.accept()
            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(UsageError, match="another program has this port"):
            copies.follow(lambda _connection: pytest.fail("served a stranger"), port, 0)


def test_a_copy_with_another_token_is_refused(meeting):
    port, _met, _leader = meeting
    with connected(port) as stranger:
        copies._line(stranger)
        stranger.sendall(f"host network {'0' * 64} 1\n".encode())
        assert stranger.recv(1) == b""
    served = []
    copies.follow(served.append, port, 20)
    served[0].close()


def test_a_port_that_is_taken_is_said(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with socket.create_server(("", 0)) as other, pytest.raises(UsageError, match="can't listen for the other copies"):
        copies.lead([sys.executable, "-c", ""], other.getsockname()[1], 1)
