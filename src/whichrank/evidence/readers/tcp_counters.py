"""What TCP has counted in a network namespace: the pairs of lines of /proc/net/snmp and /proc/net/netstat."""

from __future__ import annotations

from whichrank.evidence.text.host_of_path import host_of_path
from whichrank.evidence.text.namespace_looks import Moment, address_of, moment_of
from whichrank.evidence.text.text_file import at_line_start, begins_line, chunks, is_text
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.network import TcpCounters

NAME = "tcp_counters"

_MOST = 16 << 20
_LONGEST = 1 << 14
_KEPT = ("OutSegs", "RetransSegs", "InSegs", "TCPTimeouts", "TCPDSACKRecv", "TCPLostRetransmit", "TCPFastRetrans",
         "TCPSynRetrans", "ListenOverflows", "ListenDrops", "TCPMTUPFail", "AttemptFails", "EstabResets")  # fmt: skip
# Interfaces may stand above the counters, in what `whichrank run` takes.
_SHAPES = at_line_start(rb"(?:Tcp|TcpExt): (?:RtoAlgorithm|SyncookiesSent) |# network namespace \d{1,12}\b")


def sniff(head: bytes, name: str) -> bool:  # noqa: ARG001
    """True for the files of /proc, and for a namespace as it is kept in a bundle."""
    return is_text(head) and begins_line(_SHAPES, head)


def read(item: Item) -> Reading:
    """One `TcpCounters` per moment."""
    looks = _Looks(item.label)
    size = 0
    for chunk in chunks(item.path):
        size += len(chunk)
        if size > _MOST:
            return Reading([*looks.found], "partial", "too long to be read whole")
        for line in chunk.splitlines():
            looks.feed(line[:_LONGEST])
    looks.close()
    return Reading([*looks.found]) if looks.found else Reading([], "ignored", "no counters of TCP in it")


class _Looks:
    """Lines in, one record per look out."""

    def __init__(self, label: str) -> None:
        self.found: list[TcpCounters] = []
        self._label = label
        self._host = host_of_path(label)
        self._now = Moment()
        self._counters: dict[str, int] = {}
        self._names: list[str] = []
        self._number = self._first = 0

    def feed(self, raw: bytes) -> None:
        self._number += 1
        taken_ns = moment_of(raw)
        if taken_ns is not None:
            self.close()
            self._now = Moment(taken_ns)
        elif raw.startswith((b"Tcp: ", b"TcpExt: ")):
            self._pair(raw.decode("ascii", "replace").split())
        elif not self._now.address:
            self._now.address = address_of(raw.decode("ascii", "replace"))

    def _pair(self, words: list[str]) -> None:
        """A line of names, or the line of values below it."""
        if not self._names or self._names[0] != words[0]:
            if words[0] == "Tcp:" and "OutSegs" in self._counters:  # a second look in the same file
                self.close()
            self._names = words
            return
        pairs = zip(self._names, words, strict=False)
        self._first = self._first if self._counters else self._number
        self._counters |= {n: int(w) for n, w in pairs if n in _KEPT and w.isdecimal() and len(w) <= 20}
        self._names = []

    def close(self) -> None:
        """What was counted so far is one look."""
        counters, self._counters, self._names = self._counters, {}, []
        if "OutSegs" not in counters:
            return
        host = self._host or self._now.address or None
        told = " ".join(f"{n} {counters[n]}" for n in ("OutSegs", "RetransSegs", "TCPTimeouts") if n in counters)
        ref = Ref(self._label, f"line {self._first}", told, None, host, self._now.told)
        self.found.append(TcpCounters(ref, host, self._now.taken_ns, counters, self._first))
