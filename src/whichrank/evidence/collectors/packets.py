"""A short capture of a job's packets: only its own ports, only their first bytes, bounded in time, size and count.

By a packet socket where this process may open one (root, or CAP_NET_RAW), else by tcpdump where that may. The kernel
drops what is of no interest before it is copied. Python 3.8, standard library alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import socket
import struct
import time
from collections.abc import Sequence

from whichrank.evidence.collectors import tools
from whichrank.evidence.collectors.job_sockets import JobSocket

MOST_PORTS = 64
"""A jump of the kernel's filter reaches 255 steps."""
SNAP = 128
"""Bytes of a packet that are kept: the headers of IPv4 or IPv6 and TCP with options, and little else."""
MOST_PACKETS, MOST_BYTES = 50_000, 8 << 20
_ALL, _OUTGOING = 0x0003, 4
_ATTACH_FILTER = 26
_RAW_IP = 101
_TURN_S = 0.2


def ports_of(sockets: Sequence[JobSocket], rendezvous: Sequence[int] = ()) -> list[int]:
    """The ports to look at: rendezvous and store first, then where ranks listen, then the ends of their connections."""
    listening = [each.port for each in sockets if each.listens]
    ends = [each.port for each in sockets if not each.listens]
    return [port for port in dict.fromkeys((*rendezvous, *listening, *ends)) if 0 < port < 1 << 16][:MOST_PORTS]


def capture(ports: Sequence[int], seconds: float) -> tuple[bytes, str]:
    """A pcap file, and why there is none."""
    if not ports:
        return b"", "the job has no TCP socket"
    try:
        return _by_socket(ports, seconds), ""
    except PermissionError:
        return _by_tcpdump(ports, seconds)
    except OSError as error:
        return b"", f"no packet socket: {error.strerror or error}"


def _by_socket(ports: Sequence[int], seconds: float) -> bytes:
    deadline = time.monotonic() + seconds
    pieces = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, SNAP, _RAW_IP)]
    size = 0
    # Datagrams begin with the network layer, whatever carries them.
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL)) as line:
        _attach(line, [(0x06, 0, 0, 0)])
        _drain(line)  # what came before there was a filter
        _attach(line, program(ports))
        line.settimeout(_TURN_S)
        while time.monotonic() < deadline and len(pieces) <= MOST_PACKETS and size < MOST_BYTES:
            try:
                data, place = line.recvfrom(1 << 16)
            except socket.timeout:  # noqa: UP041 - Python 3.8
                continue
            if place[0] == "lo" and place[2] == _OUTGOING:
                continue  # the loopback shows every packet twice
            now = time.time_ns()
            head = struct.pack("<IIII", now // 10**9, now % 10**9, min(len(data), SNAP), len(data))
            pieces.append(head + data[:SNAP])
            size += len(pieces[-1])
    return b"".join(pieces)


def program(ports: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """A filter of the kernel (classic BPF): TCP over IPv4 or IPv6 from or to one of the ports."""
    count = len(ports)
    # Behind both lists of tests stands "refuse", and behind that "accept".
    first = [(0x15, 2 * count + 1 - at, 0, port) for at, port in enumerate(ports)]
    second = [(0x15, count - at, 0, port) for at, port in enumerate(ports)]
    ends = [*first, (0x48, 0, 0, 2), *second]  # the other port: ldh [x + 2]
    finish = [(0x06, 0, 0, 0), (0x06, 0, 0, 0x40000)]
    after4 = [(0x48, 0, 0, 0), *ends, *finish]  # ldh [x + 0]: where x is the length of the header
    after6 = [(0x01, 0, 0, 40), (0x48, 0, 0, 0), *ends, *finish]
    four = [
        (0x30, 0, 0, 9), (0x15, 1, 0, 6), (0x06, 0, 0, 0),  # TCP alone
        (0x28, 0, 0, 6), (0x45, 0, 1, 0x1FFF), (0x06, 0, 0, 0),  # no later fragment
        (0xB1, 0, 0, 0),  # x = 4 * (first byte & 15)
        *after4,
    ]  # fmt: skip
    six = [(0x30, 0, 0, 6), (0x15, 1, 0, 6), (0x06, 0, 0, 0), *after6]
    version = [
        (0x30, 0, 0, 0), (0x54, 0, 0, 0xF0), (0x15, 0, 1, 0x40),
        (0x05, 0, 0, 2 + len(six)),  # 4: over the test for 6, and what belongs to it
        (0x15, 1, 0, 0x60), (0x06, 0, 0, 0),
    ]  # fmt: skip
    return [*version, *six, *four]


def _drain(line: socket.socket) -> None:
    line.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            line.recv(1)


def _attach(line: socket.socket, steps: Sequence[tuple[int, int, int, int]]) -> None:
    packed = b"".join(struct.pack("HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(packed)
    line.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HL", len(steps), ctypes.addressof(buffer)))


def _by_tcpdump(ports: Sequence[int], seconds: float) -> tuple[bytes, str]:
    tcpdump, limit = shutil.which("tcpdump"), shutil.which("timeout")
    if tcpdump is None or limit is None:
        return b"", "only root (or CAP_NET_RAW) may see packets, and there is no tcpdump that may"
    expression = "tcp and (" + " or ".join(f"port {port}" for port in ports) + ")"
    command = [
        limit, "--preserve-status", "-s", "INT", f"{seconds:.1f}", tcpdump, "-i", "any", "-n", "-U", "-s", str(SNAP),
        "-c", str(MOST_PACKETS), "-w", "-", expression,
    ]  # fmt: skip
    data, why = tools.ask(command, seconds + 2.0)
    return (data, "") if data[:4] else (b"", f"tcpdump: {why or 'no packets'}")
