"""The reader of TCP's counters: files of /proc, and what `whichrank run` takes of a network namespace."""

from __future__ import annotations

from pathlib import Path

from whichrank.evidence.readers import ib_state, tcp_counters
from whichrank.model.contracts import Item
from whichrank.records.network import PortState, TcpCounters
from whichrank.worker import network

SNMP = """\
Ip: Forwarding DefaultTTL
Ip: 2 64
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens InSegs OutSegs RetransSegs InErrs
Tcp: 1 200 120000 -1 1 1928 {sent} {again} 0
"""
NETSTAT = """\
TcpExt: SyncookiesSent TCPTimeouts TCPDSACKRecv
TcpExt: 0 4 2
"""


def item(folder: Path, text: str, label: str) -> Item:
    path = folder / "text"
    path.write_text(text)
    return Item(path, label, path.stat().st_size, 0)


def counted(folder: Path, text: str, label: str) -> list[TcpCounters]:
    given = item(folder, text, label)
    assert tcp_counters.sniff(given.head(), label)
    return tcp_counters.read(given).records


def test_the_files_of_proc(tmp_path):
    (only,) = counted(tmp_path, SNMP.format(sent=11499, again=8) + NETSTAT, "node3/snmp.txt")
    assert only.host == "node3"
    assert only.counters == {
        "InSegs": 1928, "OutSegs": 11499, "RetransSegs": 8, "TCPTimeouts": 4, "TCPDSACKRecv": 2,
    }  # fmt: skip
    assert only.ref.locator == "line 4"


def test_two_looks_in_one_file(tmp_path):
    text = (SNMP.format(sent=100, again=1) + NETSTAT) + (SNMP.format(sent=900, again=7) + NETSTAT)
    first, last = counted(tmp_path, text, "counters.txt")
    assert (first.counters["OutSegs"], last.counters["OutSegs"]) == (100, 900)


def test_a_namespace_of_a_bundle(tmp_path):
    """Written by a real process about itself, twice."""
    text = f"# network namespace 4026531840 of ranks 0, 1\n{network.own()}{network.own()}"
    text = text.replace("== 2", "== start 2", 1)
    first, last = counted(tmp_path, text, "host/net.4026531840.txt")
    assert first.taken_ns is not None
    assert last.taken_ns is not None
    assert first.taken_ns <= last.taken_ns
    assert first.counters["OutSegs"] <= last.counters["OutSegs"]
    ports: list[PortState] = ib_state.read(item(tmp_path, text, "host/net.4026531840.txt")).records
    loopback = [port for port in ports if port.device == "lo"]
    assert [port.taken_ns for port in loopback] == [first.taken_ns, last.taken_ns]
    assert all("carrier_changes" in port.counters for port in loopback)
    # No name of a host stands in it: interfaces and counters go by the same address.
    assert {port.host for port in ports} == {first.host}


def test_nothing_is_made_of_nonsense(tmp_path):
    for text in ("Tcp: RtoAlgorithm OutSegs\n", "Tcp: RtoAlgorithm OutSegs\nTcp: 1 many\n", "# network namespace 1\n"):
        assert tcp_counters.read(item(tmp_path, text, "net.1.txt")).quality == "ignored"
