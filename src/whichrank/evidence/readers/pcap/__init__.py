"""Packet captures (pcap, pcapng): TCP connections with what was sent again, reset, refused or left unanswered."""

from __future__ import annotations

from datetime import datetime, timezone
from ipaddress import ip_address

from msgspec import Struct, field

from whichrank.evidence.readers.pcap.packets import PCAPNG, Capture, Segment, tcp_segment
from whichrank.evidence.text.host_of_path import host_of_path
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.network import TcpFlow, Way

NAME = "pcap"

_MAGIC = (b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d", PCAPNG)
# About 200,000 packets are read in a second: the bound keeps a huge capture within half a minute.
_MOST_PACKETS = 4_000_000
_MOST_FLOWS = 1 << 15
_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16


def sniff(head: bytes, name: str) -> bool:  # noqa: ARG001
    """True for the magic numbers of captures."""
    return head[:4] in _MAGIC


def read(item: Item) -> Reading:
    """One `TcpFlow` per connection, those with trouble first where there are too many."""
    flows: dict[tuple[tuple[bytes, int], tuple[bytes, int]], _Flow] = {}
    count = dropped = 0
    with item.path.open("rb") as stream:
        capture = Capture(stream)
        for packet in capture.packets():
            count += 1
            if count > _MOST_PACKETS:
                break
            segment = tcp_segment(packet)
            if segment is None:
                continue
            ends = segment.source, segment.target
            flow = flows.get(ends) or flows.get(ends[::-1])
            if flow is None:
                if len(flows) >= _MOST_FLOWS:
                    dropped += 1
                    continue
                flow = flows[ends] = _Flow(*ends, number=count, first_ns=segment.time_ns)
            flow.add(segment)
    notes = ["the capture is cut"] if capture.cut else []
    notes += [f"only the first {_MOST_PACKETS:,} packets were read"] if count > _MOST_PACKETS else []
    notes += [f"{dropped} packets of further connections not counted"] if dropped else []
    if not flows:
        return Reading([], "unusable" if capture.cut else "ignored", "; ".join([*notes, "no TCP in it"]))
    host = host_of_path(item.label)
    records = [flow.record(item.label, host) for flow in flows.values()]
    return Reading([*records], "partial" if notes else "complete", "; ".join(notes))


class _Side(Struct):
    """What one end has sent."""

    packets: int = 0
    octets: int = 0
    again: int = 0
    zero_windows: int = 0
    resets: int = 0
    opens: int = 0
    largest: int = 0
    last_ns: int | None = None
    next_seq: int | None = None
    acked: int | None = None
    """The highest byte that the other end has acknowledged."""
    run: int = 0
    run_seq: int = -1
    longest: int = 0
    stuck: int = 0

    def sent(self, segment: Segment) -> None:
        self.packets += 1
        self.octets += segment.octets
        self.last_ns = segment.time_ns
        self.largest = max(self.largest, segment.octets)
        self.resets += bool(segment.flags & _RST)
        opening = bool(segment.flags & _SYN)
        self.opens += opening
        if segment.window == 0 and not segment.flags & (_SYN | _FIN | _RST):
            self.zero_windows += 1
        length = segment.octets + opening
        if not length or segment.flags & _RST:
            return
        end = (segment.seq + length) & 0xFFFFFFFF
        if self.next_seq is None or (opening and segment.octets == 0 and self.next_seq != end):
            self.next_seq = end
        elif _behind(segment.seq, self.next_seq) and segment.octets != 1:  # one byte: a probe to keep alive
            self._again(segment)
            if _behind(self.next_seq, end):
                self.next_seq = end
        else:
            self.next_seq = end

    def _again(self, segment: Segment) -> None:
        self.again += 1
        acknowledged = self.acked is not None and not _behind(self.acked, segment.seq + 1)
        self.run = self.run + 1 if segment.seq == self.run_seq and not acknowledged else 1
        self.run_seq = segment.seq
        if self.run > self.longest:
            self.longest, self.stuck = self.run, segment.octets

    def heard(self, segment: Segment) -> None:
        """The other end's segment: what it acknowledges."""
        if segment.flags & _ACK and (self.acked is None or _behind(self.acked, segment.ack)):
            self.acked, self.run = segment.ack, 0

    def way(self) -> Way:
        return Way(
            self.packets, self.octets, self.again, self.zero_windows, self.resets, self.opens, self.largest,
            self.last_ns, self.longest, self.stuck,
        )  # fmt: skip


def _behind(one: int, other: int) -> bool:
    """Whether a sequence number lies before another, across the wrap."""
    return 0 < ((other - one) & 0xFFFFFFFF) < 1 << 31


class _Flow(Struct):
    a: tuple[bytes, int]
    b: tuple[bytes, int]
    number: int
    first_ns: int
    last_ns: int = 0
    sides: dict[tuple[bytes, int], _Side] = field(default_factory=dict)

    def add(self, segment: Segment) -> None:
        self.last_ns = segment.time_ns
        self.sides.setdefault(segment.source, _Side()).sent(segment)
        self.sides.setdefault(segment.target, _Side()).heard(segment)

    def record(self, source: str, host: str | None) -> TcpFlow:
        there, back = self.sides.get(self.a, _Side()).way(), self.sides.get(self.b, _Side()).way()
        a, b = _named(self.a), _named(self.b)
        sent, again = there.packets + back.packets, there.again + back.again
        quote = (
            f"{a} -> {b}: {sent} packets, {again} sent again, {there.resets + back.resets} resets,"
            f" {there.zero_windows + back.zero_windows} zero windows"
        )
        time = (
            datetime.fromtimestamp(min(self.first_ns // 10**9, 1 << 33), timezone.utc)
            .isoformat()
            .replace("+00:00", "Z")
        )
        ref = Ref(source, f"packet {self.number}", quote, None, host, time)
        return TcpFlow(ref, a, b, there, back, host, self.first_ns, self.last_ns)


def _named(end: tuple[bytes, int]) -> str:
    address, port = end
    return f"{ip_address(address)}:{port}" if len(address) == 4 else f"[{ip_address(address)}]:{port}"
