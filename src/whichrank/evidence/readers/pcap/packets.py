"""Packet captures as packets: pcap and pcapng, read as a stream; and from a packet the TCP segment in it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from msgspec import Struct

_PCAP = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
"""Magic -> byte order and nanoseconds per unit of the fraction."""
PCAPNG = b"\x0a\x0d\x0d\x0a"
_BYTE_ORDER = 0x1A2B3C4D
_LARGEST = 1 << 18
_LARGEST_BLOCK = 1 << 24
_ETHERNET, _RAW, _LINUX_ANY, _LINUX_ANY2 = 1, (12, 14, 101), 113, 276
_VLAN = (0x8100, 0x88A8)


class Packet(NamedTuple):
    """A captured packet: when, its first bytes, how long it was, and what kind of link."""

    time_ns: int
    data: bytes
    size: int
    link: int


class Segment(NamedTuple):
    """A TCP segment without its bytes."""

    time_ns: int
    source: tuple[bytes, int]
    target: tuple[bytes, int]
    seq: int
    ack: int
    flags: int
    window: int
    octets: int


class Capture(Struct):
    """A capture file; `cut` says that it ended within a packet or was damaged."""

    stream: BinaryIO
    cut: bool = False

    def packets(self) -> Iterator[Packet]:
        magic = self.stream.read(4)
        if magic in _PCAP:
            yield from self._pcap(*_PCAP[magic])
        elif magic == PCAPNG:
            yield from self._pcapng()
        else:
            self.cut = True

    def _pcap(self, order: str, unit: int) -> Iterator[Packet]:
        head = self.stream.read(20)
        if len(head) < 20:
            self.cut = True
            return
        link = struct.unpack(order + "I", head[16:20])[0] & 0x0FFFFFFF
        record = struct.Struct(order + "IIII")
        while row := self.stream.read(16):
            if len(row) < 16:
                self.cut = True
                return
            seconds, fraction, captured, size = record.unpack(row)
            data = self.stream.read(captured) if captured <= _LARGEST else b""
            if captured > _LARGEST or len(data) < captured:
                self.cut = True
                return
            yield Packet(seconds * 10**9 + fraction * unit, data, size, link)

    def _pcapng(self) -> Iterator[Packet]:
        order = self._section(first=True)
        links: list[tuple[int, float]] = []
        while order and (head := self.stream.read(8)):
            if len(head) < 8:
                self.cut = True
                return
            if head[:4] == PCAPNG:
                self.stream.seek(-4, 1)
                order, links = self._section(first=False), []
                continue
            kind, length = struct.unpack(order + "II", head)
            body = self.stream.read(length - 8) if 12 <= length <= _LARGEST_BLOCK and length % 4 == 0 else b""
            if len(body) < length - 8 or not body:
                self.cut = True
                return
            if kind == 1 and len(body) >= 12 and len(links) < 4096:
                links.append((struct.unpack(order + "H", body[:2])[0], _resolution(body[8:-4], order)))
            elif kind == 6 and len(body) >= 24:
                number, high, low, captured, size = struct.unpack(order + "IIIII", body[:20])
                if number < len(links) and captured <= len(body) - 24:
                    link, unit = links[number]
                    yield Packet(int(((high << 32) | low) * unit), body[20 : 20 + captured], size, link)

    def _section(self, *, first: bool) -> str:
        """The byte order of a section; its heading's other words are passed over."""
        head = self.stream.read(8)
        if len(head) < 8:
            self.cut = True
            return ""
        order = "<" if struct.unpack("<I", head[4:])[0] == _BYTE_ORDER else ">"
        length = struct.unpack(order + "I", head[:4])[0]
        if struct.unpack(order + "I", head[4:])[0] != _BYTE_ORDER or not 28 <= length <= _LARGEST_BLOCK:
            self.cut = True
            return ""
        rest = length - 12
        self.cut = self.cut or len(self.stream.read(rest)) < rest
        return "" if self.cut and first else order


def _resolution(options: bytes, order: str) -> float:
    """Nanoseconds per tick of an interface (option 9, if_tsresol); microseconds by default."""
    at = 0
    while at + 4 <= len(options):
        code, length = struct.unpack(order + "HH", options[at : at + 4])
        if code == 9 and length == 1 and at + 4 < len(options):
            value = options[at + 4]
            ticks = float(2 ** (value & 0x7F)) if value & 0x80 else float(10 ** min(value, 18))
            return 1e9 / ticks
        if code == 0:
            break
        at += 4 + (length + 3) // 4 * 4
    return 1000.0


def tcp_segment(packet: Packet) -> Segment | None:
    """The TCP segment in a packet, or nothing."""
    data, at = packet.data, _network_layer(packet)
    if at < 0 or len(data) < at + 20:
        return None
    version = data[at] >> 4
    if version == 4:
        start, total = at + (data[at] & 15) * 4, int.from_bytes(data[at + 2 : at + 4], "big")
        fragment = int.from_bytes(data[at + 6 : at + 8], "big") & 0x1FFF
        if data[at + 9] != 6 or fragment or start < at + 20:
            return None
        # 0 where the card was to cut a large segment itself.
        end = at + total if total else packet.size
        source, target = data[at + 12 : at + 16], data[at + 16 : at + 20]
    elif version == 6 and len(data) >= at + 40 and data[at + 6] == 6:
        start, source, target = at + 40, data[at + 8 : at + 24], data[at + 24 : at + 40]
        end = start + (int.from_bytes(data[at + 4 : at + 6], "big") or packet.size - start)
    else:
        return None
    if len(data) < start + 16:
        return None
    ports = struct.unpack(">HHIIBBH", data[start : start + 16])
    octets = max(0, end - start - (ports[4] >> 4) * 4)
    return Segment(
        packet.time_ns, (source, ports[0]), (target, ports[1]), ports[2], ports[3], ports[5], ports[6], octets
    )


def _network_layer(packet: Packet) -> int:
    """Where the IP header begins; -1 where there is none."""
    data, link = packet.data, packet.link
    if link in _RAW:
        return 0
    if link == 0:
        return 4
    if link == _LINUX_ANY:
        return 16 if data[14:16] in (b"\x08\x00", b"\x86\xdd") else -1
    if link == _LINUX_ANY2:
        return 20 if data[0:2] in (b"\x08\x00", b"\x86\xdd") else -1
    if link != _ETHERNET:
        return -1
    at = 12
    for _ in range(3):
        kind = int.from_bytes(data[at : at + 2], "big")
        if kind not in _VLAN:
            return at + 2 if kind in (0x0800, 0x86DD) else -1
        at += 4
    return -1
