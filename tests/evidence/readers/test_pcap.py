"""The reader of packet captures: a recorded one, and built ones in every format."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichrank.evidence.readers import pcap
from whichrank.model.contracts import Item, Reading
from whichrank.records.network import TcpFlow

SAMPLE = Path(__file__).parents[2] / "samples" / "hardware" / "loopback.pcap"
SYN, ACK, RST, PUSH = 2, 16, 4, 24
A, B = ("10.0.0.1", 41234), ("10.0.0.2", 29500)


def read(path: Path, label: str = "node7/cap.pcap") -> Reading:
    return pcap.read(Item(path, label, path.stat().st_size, 0))


def write(folder: Path, data: bytes) -> Reading:
    path = folder / "evidence"
    path.write_bytes(data)
    assert pcap.sniff(data[:4096], "x")
    return read(path)


def flows(reading: Reading) -> list[TcpFlow]:
    return [record for record in reading.records if isinstance(record, TcpFlow)]


def segment(source, target, seq, ack=0, flags=ACK, octets=0, *, window=500, vlan=False, six=False):
    """An Ethernet frame with its TCP header; the payload is not captured."""
    tcp = struct.pack(">HHIIBBHHH", source[1], target[1], seq % 2**32, ack % 2**32, 80, flags, window, 0, 0)
    if six:
        pad = b"\0" * 12
        ends = pad + bytes(map(int, source[0].split("."))) + pad + bytes(map(int, target[0].split(".")))
        ip = struct.pack(">IHBB", 6 << 28, 20 + octets, 6, 64) + ends
    else:
        ends = bytes(map(int, source[0].split("."))) + bytes(map(int, target[0].split(".")))
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 40 + octets, 1, 0x4000, 64, 6, 0) + ends
    kind = b"\x86\xdd" if six else b"\x08\x00"
    return b"\0" * 12 + (b"\x81\x00\x00\x05" if vlan else b"") + kind + ip + tcp


def capture(frames, order="<", nano=False, link=1):
    head = struct.pack(order + "IHHiIII", 0xA1B23C4D if nano else 0xA1B2C3D4, 2, 4, 0, 0, 96, link)
    rows = [struct.pack(order + "IIII", 1794710171 + i, 5, len(f), len(f) + 9) + f for i, f in enumerate(frames)]
    return head + b"".join(rows)


def blocks(frames, order="<", resolution=None):
    """The same as pcapng."""

    def block(kind, body):
        body += b"\0" * (-len(body) % 4)
        length = struct.pack(order + "I", len(body) + 12)
        return struct.pack(order + "I", kind) + length + body + length

    section = block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    options = struct.pack(order + "HHB3xHH", 9, 1, resolution, 0, 0) if resolution is not None else b""
    data = section + block(1, struct.pack(order + "HHI", 1, 0, 96) + options)
    unit = 10**9 if resolution == 9 else 10**6
    for i, frame in enumerate(frames):
        ticks = (1794710171 + i) * unit
        data += block(
            6, struct.pack(order + "IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame)) + frame
        )
    return data


def exchange(**kwargs):
    """A handshake, then ten segments of which two are sent again."""
    frames = [segment(A, B, 100, flags=SYN, **kwargs), segment(B, A, 900, 101, SYN | ACK, **kwargs)]
    for number in range(10):
        frames.append(segment(A, B, 101 + number * 1000, 901, PUSH, 1000, **kwargs))
        if number in (3, 7):
            frames.append(segment(A, B, 101 + number * 1000, 901, PUSH, 1000, **kwargs))
        frames.append(segment(B, A, 901, 1101 + number * 1000, **kwargs))
    return frames


def test_a_recorded_capture():
    reading = read(SAMPLE)
    plain, unread, refused = flows(reading)
    assert (reading.quality, plain.host) == ("complete", "node7")
    assert (plain.a_to_b.octets, plain.b_to_a.octets, plain.a_to_b.opens) == (20000, 4000, 1)
    assert (plain.a_to_b.again, plain.b_to_a.again, plain.a_to_b.resets) == (0, 0, 0)
    assert (unread.b_to_a.zero_windows, unread.b_to_a.resets, unread.a_to_b.again) == (3, 1, 1)
    assert (refused.a_to_b.opens, refused.b_to_a.resets, refused.b_to_a.opens) == (1, 1, 0)
    assert refused.ref.locator == "packet 107"


FORMATS = {
    "pcap": capture, "big endian": lambda f: capture(f, ">"), "nanoseconds": lambda f: capture(f, "<", True),
    "pcapng": blocks, "pcapng big endian": lambda f: blocks(f, ">"), "pcapng ns": lambda f: blocks(f, "<", 9),
    "raw": lambda f: capture([x[14:] for x in f], link=101),
    "cooked": lambda f: capture([b"\0" * 14 + x[12:] for x in f], link=113),
    "cooked 2": lambda f: capture([x[12:14] + b"\0" * 18 + x[14:] for x in f], link=276),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_every_format(tmp_path, name):
    (flow,) = flows(write(tmp_path, FORMATS[name](exchange())))
    assert (flow.a, flow.b) == ("10.0.0.1:41234", "10.0.0.2:29500")
    assert (flow.a_to_b.packets, flow.a_to_b.again, flow.b_to_a.packets, flow.b_to_a.again) == (13, 2, 11, 0)
    assert flow.first_ns is not None
    assert flow.first_ns // 10**9 == 1794710171


def test_tagged_and_ipv6(tmp_path):
    assert flows(write(tmp_path, capture(exchange(vlan=True))))[0].a_to_b.again == 2
    (flow,) = flows(write(tmp_path, capture(exchange(six=True))))
    assert (flow.b, flow.a_to_b.again) == ("[::a00:2]:29500", 2)


def test_a_sequence_that_wraps_is_nothing_sent_again(tmp_path):
    frames = [segment(A, B, 2**32 - 2000 + i * 1000, 1, PUSH, 1000) for i in range(6)]
    assert flows(write(tmp_path, capture(frames)))[0].a_to_b.again == 0


def test_one_large_segment_that_never_arrives(tmp_path):
    frames = [segment(A, B, 1, 1, PUSH, 100), segment(B, A, 1, 101)]
    frames += [segment(A, B, 101, 1, PUSH, 8948), *[segment(A, B, 101, 1, PUSH, 8948)] * 5, segment(B, A, 1, 101)]
    way = flows(write(tmp_path, capture(frames)))[0].a_to_b
    assert (way.again, way.unanswered_again, way.stuck_octets) == (5, 5, 8948)
    answered = [segment(A, B, 1, 1, PUSH, 100)]
    for number in range(5):
        answered += [segment(A, B, 1 + number * 100, 1, PUSH, 100)] * 2 + [segment(B, A, 1, 101 + number * 100)]
    assert flows(write(tmp_path, capture(answered)))[0].a_to_b.unanswered_again < 3


def test_a_cut_capture_is_read_to_the_cut(tmp_path):
    data = capture(exchange())
    reading = write(tmp_path, data[:-7])
    assert (reading.quality, reading.note, len(reading.records)) == ("partial", "the capture is cut", 1)
    assert write(tmp_path, data[:10]).quality == "unusable"
    assert write(tmp_path, blocks(exchange())[:-3]).quality == "partial"
    huge = capture([])[:24] + struct.pack("<IIII", 1, 1, 0xFFFFFFF0, 0xFFFFFFF0)
    assert write(tmp_path, huge).quality == "unusable"


@given(st.integers(0, 1500), st.binary(max_size=60), st.sampled_from(sorted(FORMATS)))
def test_survives_cuts_and_noise(tmp_path_factory, cut, noise, name):
    whole = FORMATS[name](exchange())
    path = tmp_path_factory.mktemp("fuzz") / "evidence"
    path.write_bytes(whole[:cut] + noise + whole[cut + len(noise) :])
    for flow in flows(read(path)):
        assert flow.a_to_b.packets + flow.b_to_a.packets > 0
