"""The reader of sockets: what `ss` prints in all its forms, and what ranks write of themselves."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import cost
from whichrank.evidence.readers import sockets
from whichrank.model.contracts import Item, Reading
from whichrank.records.network import TcpSocket
from whichrank.worker import sockets as inside

TWO_LINES = """\
State Recv-Q Send-Q Local Address:Port Peer Address:Port Process
ESTAB 0      166960     10.77.0.2:50300    10.77.0.1:41821 users:(("python",pid=28774,fd=9))
\t bbr wscale:10,10 rto:6528 backoff:5 rtt:0.25/0.308 ato:40 mss:1448 pmtu:1500 cwnd:1 bytes_sent:186047752 \
bytes_retrans:1424 bytes_acked:185879369 bytes_received:107040 segs_out:131892 data_segs_out:131587 \
bbr:(bw:86880000000bps,mrtt:0.003) send 46336000bps lastsnd:5520 lastrcv:12036 lastack:12036 \
pacing_rate 248290143744bps delivery_rate 86880000000bps app_limited busy:12432ms unacked:120 retrans:1/13 lost:120 \
dsack_dups:7 minrtt:0.003
ESTAB 0      0     [::ffff:10.77.0.2]:29500 [::ffff:10.77.0.1]:38098
\t bbr rto:208 rtt:5.161/10.287 mss:32768 rwnd_limited:8ms(1.2%) lastsnd:12 lastack:8
"""
ONE_LINE = """\
State    Recv-Q Send-Q Local Address:Port  Peer Address:Port Process
ESTAB    0      96         10.77.0.2:38283    10.77.0.3:42774 timer:(on,1.004ms,5) cubic rto:6528 backoff:5 mss:1448
SYN-SENT 0      1      10.77.0.2%eth0:41234   10.77.0.1:29500 timer:(on,3.200ms,3)
LISTEN   0      4096   [::]:29500                  [::]:*
"""


def read(folder: Path, text: str, label: str = "ss.txt") -> Reading:
    path = folder / "text"
    path.write_text(text)
    item = Item(path, label, path.stat().st_size, 0)
    assert sockets.sniff(item.head(), label)
    return sockets.read(item)


def found(folder: Path, text: str, label: str = "ss.txt") -> list[TcpSocket]:
    return read(folder, text, label).records


def test_two_lines(tmp_path):
    one, other = found(tmp_path, TWO_LINES, "ss-node2.txt")
    assert (one.here, one.there) == (("10.77.0.2", 50300), ("10.77.0.1", 41821))
    assert (one.state, one.send_queue, one.pid, one.host, one.tries) == ("ESTAB", 166960, 28774, "node2", 5)
    told = {
        name: one.number(name) for name in ("unacked", "retrans", "total_retrans", "rtt", "rttvar", "delivery_rate")
    }
    assert told == {
        "unacked": 120,
        "retrans": 1,
        "total_retrans": 13,
        "rtt": 0.25,
        "rttvar": 0.308,
        "delivery_rate": 86.88e9,
    }
    assert (one.number("app_limited"), one.number("minrtt"), one.number("mss")) == (1, 0.003, 1448)
    assert other.here == ("10.77.0.2", 29500)
    assert (other.number("rwnd_limited"), other.number("app_limited")) == (8, 0)
    assert "backoff:5" in one.ref.quote
    assert "retrans:1/13" in one.ref.quote


def test_one_line_and_timers(tmp_path):
    established, opening, listening = found(tmp_path, ONE_LINE)
    assert (established.timer, established.tries, established.number("backoff")) == ("on", 5, 5)
    assert (opening.state, opening.local, opening.tries) == ("SYN-SENT", "10.77.0.2", 3)
    assert (listening.state, listening.here, listening.peer_port) == ("LISTEN", ("::", 29500), 0)


@pytest.fixture
def pair():
    """A real connection whose reader does not read."""
    listener = socket.create_server(("127.0.0.1", 0))
    one = socket.create_connection(listener.getsockname())
    other, _ = listener.accept()
    one.setblocking(False)
    one.send(b"x" * 30_000)
    yield one, other
    for each in (one, other, listener):
        each.close()


@pytest.mark.parametrize("write", [inside.own, lambda: inside.of_process(os.getpid())], ids=["inside", "outside"])
def test_what_a_rank_writes_of_itself(tmp_path, pair, write):
    one, other = pair
    time.sleep(0.1)
    told = {(s.state, s.here): s for s in found(tmp_path, write(), "host/sockets.rank_3.txt")}
    mine, theirs = told["ESTAB", one.getsockname()], told["ESTAB", other.getsockname()]
    assert (mine.rank, mine.there, theirs.recv_queue) == (3, other.getsockname(), 30_000)
    assert ("LISTEN", other.getsockname()) in told


def test_whom_a_rank_tries_to_reach_is_told():
    """The kernel has no name for the peer of a connection that is not made yet."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        tries = [socket.socket() for _ in range(4)]
        for each in tries:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        time.sleep(0.2)
        waiting = [line.split() for line in inside.own().splitlines() if line.startswith("SYN-SENT")]
        for each in tries:
            each.close()
        assert waiting
        assert {words[4] for words in waiting} == {f"127.0.0.1:{full.getsockname()[1]}"}


def test_of_many_idle_connections_some_are_enough(tmp_path):
    idle = "".join(
        f"ESTAB 0 0 10.0.0.1:{port} 10.0.0.2:40000\n\t cubic rto:204 rtt:0.1/0.1 bytes_received:8\n"
        for port in range(10_000, 14_000)
    )
    busy = "ESTAB 0 0 10.0.0.1:9999 10.0.0.2:40000\n\t cubic rto:204 rtt:0.1/0.1 bytes_sent:900000\n"
    told = found(tmp_path, TWO_LINES.partition("\n")[0] + "\n" + idle + busy)
    assert len(told) < 100
    assert told[-1].local_port == 9999


def test_other_text_is_none_of_it():
    assert not sockets.sniff(b"State Recv-Q of something else\nESTAB\n", "a.log")
    assert not sockets.sniff(b"\0\1\2State Recv-Q Send-Q Local Address:Port Peer Address:Port", "a.bin")


@given(st.lists(st.one_of(st.sampled_from(TWO_LINES.splitlines() + ONE_LINE.splitlines()), st.text(max_size=80))))
def test_any_lines_are_survived(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("any")
    text = TWO_LINES.partition("\n")[0] + "\n" + "\n".join(lines).encode("utf-8", "replace").decode()
    assert read(folder, text).quality in ("complete", "partial")


def test_hostile_lines_take_no_time(tmp_path):
    long = "ESTAB 0 0 " + "1:" * 2000 + "\n\t" + "a:1/" * 2000 + "\n" + "timer:(" * 900
    with cost.at_most(5):
        read(tmp_path, TWO_LINES.partition("\n")[0] + "\n" + (long + "\n") * 300)
