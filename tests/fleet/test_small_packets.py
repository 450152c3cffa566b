"""The relay that lets ssh through where large packets vanish."""

from __future__ import annotations

import socket
import subprocess
import sys

from tests.conftest import command_environment
from whichrank.fleet import small_packets


def test_both_ends_keep_to_small_segments():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        small_packets.connect("127.0.0.1", server.getsockname()[1]) as one,
        server.accept()[0] as peer,
    ):
        sizes = [end.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) for end in (one, peer)]
    assert max(sizes) <= small_packets.SEGMENT


def test_all_that_is_said_arrives_both_ways():
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-m", "whichrank.fleet.small_packets", "127.0.0.1", str(server.getsockname()[1])]
        relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=command_environment())
        with server.accept()[0] as peer:
            relay.stdin.write(b"x" * 50_000)
            relay.stdin.flush()
            assert peer.recv(50_000, socket.MSG_WAITALL) == b"x" * 50_000
            peer.sendall(b"y" * 100_000)
            peer.shutdown(socket.SHUT_WR)
            told, _ = relay.communicate(timeout=120)
    assert (told, relay.returncode) == (b"y" * 100_000, 0)
