"""Packets of a job by a real packet socket: its own ports, IPv4 and IPv6, read by the reader of captures."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from whichrank.evidence.collectors import job_sockets, packets
from whichrank.evidence.readers import pcap
from whichrank.model.contracts import Item

SECONDS = 1.5


def talk(listener: socket.socket, address: str) -> None:
    with socket.create_connection((address, listener.getsockname()[1])) as near, listener.accept()[0] as far:
        near.sendall(b"x" * 3000)
        far.recv(4000)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may open a packet socket")
def test_only_the_ports_that_are_meant(tmp_path: Path) -> None:
    places = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
    listeners = [(socket.create_server((address, 0), family=family), address) for family, address in places * 2]
    wanted = [listener.getsockname()[1] for listener, _ in listeners[:2]]
    timers = [threading.Timer(0.4, talk, each) for each in listeners]
    for timer in timers:
        timer.start()
    data, why = packets.capture(wanted, SECONDS)
    for timer in timers:
        timer.join()
    for listener, _ in listeners:
        listener.close()
    assert why == ""
    path = tmp_path / "packets.pcap"
    path.write_bytes(data)
    read = pcap.read(Item(path, path.name, len(data), 0))
    assert read.quality == "complete"
    assert {int(flow.b.rpartition(":")[2]) for flow in read.records} == set(wanted)
    assert {flow.a_to_b.octets for flow in read.records} == {3000}


@pytest.mark.parametrize("count", [1, 2, packets.MOST_PORTS])
def test_every_jump_of_the_filter_stays_inside(count: int) -> None:
    steps = packets.program(list(range(1000, 1000 + count)))
    returns = {at for at, step in enumerate(steps) if step[0] == 0x06}
    for at, (code, yes, no, k) in enumerate(steps):
        if code in (0x15, 0x45):
            assert max(yes, no) < 256
            assert at + 1 + max(yes, no) < len(steps)
        if code == 0x15 and k >= 1000:
            assert steps[at + 1 + yes] == (0x06, 0, 0, 0x40000), "a port that is meant is accepted"
        if code == 0x05:
            assert at + 1 + k < len(steps)
    assert len(steps) - 1 in returns


def test_the_ports_of_a_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as near, listener.accept()[0]:
            found = job_sockets.of([os.getpid()])
            own = near.getsockname()[1]
    assert any(each.port == port and each.listens and not each.anywhere for each in found)
    assert any(each.port == own and each.peer_port == port and each.established for each in found)
    assert packets.ports_of(found, [29500])[0] == 29500
    assert port in packets.ports_of(found)


def test_without_ports_there_is_nothing_to_see() -> None:
    assert packets.capture([], 1.0) == (b"", "the job has no TCP socket")


UNPRIVILEGED = """
import ctypes, sys
from whichrank.evidence.collectors import packets

libc, NET_RAW = ctypes.CDLL(None), 13
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert libc.capget(header, data) == 0
data[0] &= ~(1 << NET_RAW)
assert libc.capset(header, data) == 0
found, why = packets.capture([int(sys.argv[1])], float(sys.argv[2]))
sys.stdout.buffer.write(found)
sys.exit(why or None)
"""
"""A process that may open no packet socket; a program that it starts may."""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("tcpdump") is None, reason="needs root and tcpdump")
def test_tcpdump_is_asked_where_no_packet_socket_may_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "packets.pcap"
    with socket.create_server(("127.0.0.1", 0)) as listener, path.open("wb") as found:
        command = [sys.executable, "-c", UNPRIVILEGED, str(listener.getsockname()[1]), "3"]
        capturing = subprocess.Popen(command, stdout=found, stderr=subprocess.PIPE)
        until = time.monotonic() + 90
        while capturing.poll() is None and time.monotonic() < until:  # nobody says when its filter is set
            talk(listener, "127.0.0.1")
            time.sleep(0.2)
        _, said = capturing.communicate(timeout=30)
    assert capturing.returncode == 0, said.decode()
    read = pcap.read(Item(path, path.name, path.stat().st_size, 0))
    assert 3000 in {flow.a_to_b.octets for flow in read.records}


def test_without_either_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> bytes:
        raise PermissionError

    monkeypatch.setattr(packets, "_by_socket", refuse)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert packets.capture([29500], 0.1) == (
        b"",
        "only root (or CAP_NET_RAW) may see packets, and there is no tcpdump that may",
    )
