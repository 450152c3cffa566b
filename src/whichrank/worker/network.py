"""A network namespace at one moment, from the inside: interfaces as `ip -s addr` tells them, and TCP's counters.

Copied into the job beside `startup.py`: standard library only, for any Python that torch runs on.
"""

from __future__ import annotations

import os
import struct
import time
from typing import Any

LIMIT_S = 1.0
MOST = 1 << 20
"""Bytes of the kernel's answer: about 700 interfaces."""
_GETLINK, _GETADDR = 18, 22
_NAME, _MTU, _QDISC, _OPERSTATE, _STATS64, _CARRIER_CHANGES = 3, 4, 6, 16, 23, 35
_ADDRESS, _LOCAL = 1, 2
_STATES = ("UNKNOWN", "NOTPRESENT", "DOWN", "LOWERLAYERDOWN", "TESTING", "DORMANT", "UP")
_FLAGS = (
    (0x8, "LOOPBACK"), (0x2, "BROADCAST"), (0x10, "POINTOPOINT"), (0x1000, "MULTICAST"), (0x80, "NOARP"),
    (0x100, "PROMISC"), (0x400, "MASTER"), (0x800, "SLAVE"), (0x1, "UP"), (0x10000, "LOWER_UP"),
)  # fmt: skip
_UP, _RUNNING = 0x1, 0x40
# struct rtnl_link_stats64: where each column of `ip -s link` stands.
_RX = (("bytes", 2), ("packets", 0), ("errors", 4), ("dropped", 6), ("missed", 15), ("mcast", 8))
_TX = (("bytes", 3), ("packets", 1), ("errors", 5), ("dropped", 7), ("carrier", 17), ("collsns", 9))


def namespace(pid: int | str = "self") -> int:
    """The number of a process's network namespace; 0 where that may not be known."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino  # noqa: PTH116 - pathlib is not imported into a job
    except OSError:
        return 0


def own(moment: str = "now") -> str:
    """The namespace of this process, under a line with the moment and its time."""
    try:
        interfaces = _interfaces()
    except (OSError, ValueError, struct.error):  # a sandbox may refuse netlink
        interfaces = _text("/proc/self/net/dev")
    return f"{_head(moment)}{interfaces}{_counters('self')}"


def of_process(pid: int, moment: str = "now") -> str:
    """The namespace of another process, by /proc: without the states and the sizes of its interfaces."""
    return f"{_head(moment)}{_text(f'/proc/{pid}/net/dev')}{_counters(pid)}"


def _head(moment: str) -> str:
    now = time.time()
    return f"== {moment} {time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03d}Z ==\n"


def _counters(pid: int | str) -> str:
    """The pairs of lines of /proc/net/snmp and netstat that speak of TCP and IP."""
    lines = (_text(f"/proc/{pid}/net/snmp") + _text(f"/proc/{pid}/net/netstat")).splitlines()
    return "".join(f"{line}\n" for line in lines if line.startswith(("Tcp:", "TcpExt:", "Ip:", "IpExt:")))


def _interfaces() -> str:
    lines = []
    addresses = _addresses()
    for body in _ask(_GETLINK):
        _family, _kind, index, flags, _change = struct.unpack_from("<BxHiII", body)
        found = _attributes(body[16:])
        name = found.get(_NAME, b"?").rstrip(b"\0").decode("ascii", "replace")
        state = found.get(_OPERSTATE, b"\0")[0]
        words = [word for bit, word in _FLAGS if flags & bit]
        if flags & _UP and not flags & _RUNNING:
            words.insert(0, "NO-CARRIER")
        lines.append(
            f"{index}: {name}: <{','.join(words)}> mtu {_number(found.get(_MTU))} "
            f"qdisc {found.get(_QDISC, b'none').rstrip(bytes(1)).decode('ascii', 'replace')} "
            f"state {_STATES[state] if state < len(_STATES) else 'UNKNOWN'} "
            f"carrier_changes {_number(found.get(_CARRIER_CHANGES))}"
        )
        lines += [f"    {address}" for address in addresses.get(index, [])]
        lines += _statistics(found.get(_STATS64, b""))
    return "".join(f"{line}\n" for line in lines)


def _statistics(raw: bytes) -> list[str]:
    values = struct.unpack_from(f"<{len(raw) // 8}Q", raw)
    if len(values) < 18:
        return []
    lines = []
    for side, columns in (("RX", _RX), ("TX", _TX)):
        lines.append(f"    {side}: {' '.join(name for name, _ in columns)}")
        lines.append(f"    {' '.join(str(values[at]) for _, at in columns)}")
    return lines


def _addresses() -> dict[int, list[str]]:
    import socket

    found: dict[int, list[str]] = {}
    for body in _ask(_GETADDR):
        family, prefix, _flags, _scope, index = struct.unpack_from("<BBBBI", body)
        attributes = _attributes(body[8:])
        raw = attributes.get(_LOCAL) or attributes.get(_ADDRESS) or b""
        if (family, len(raw)) in ((socket.AF_INET, 4), (socket.AF_INET6, 16)):
            word = "inet" if family == socket.AF_INET else "inet6"
            found.setdefault(index, []).append(f"{word} {socket.inet_ntop(family, raw)}/{prefix}")
    return found


def _ask(kind: int) -> list[bytes]:
    """The bodies of a netlink dump."""
    import socket

    bodies: list[bytes] = []
    total = 0
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as route:
        route.settimeout(LIMIT_S)
        route.bind((0, 0))
        request = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
        route.send(struct.pack("<IHHII", 32, kind, request, 1, 0) + bytes(16))
        while total < MOST:
            data = route.recv(1 << 16)
            total += len(data)
            at = 0
            while at + 16 <= len(data):
                length, answer = struct.unpack_from("<IH", data, at)
                if answer in (2, 3) or length < 16:  # an error, or the end
                    return bodies
                bodies.append(data[at + 16 : at + length])
                at += (length + 3) & ~3
    return bodies


def _attributes(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("<HH", data, at)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[at + 4 : at + length]
        at += (length + 3) & ~3
    return found


def _number(raw: Any) -> int:
    return struct.unpack("<I", raw)[0] if raw is not None and len(raw) == 4 else 0


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:  # noqa: PTH123
            return stream.read(MOST)
    except OSError:
        return ""
