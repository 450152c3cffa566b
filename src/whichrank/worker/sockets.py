"""The TCP connections of a process in the words of `ss`: from the inside with all that TCP knows, else by /proc.

Copied into the job beside `startup.py`: standard library only, for any Python that torch runs on.
"""

from __future__ import annotations

import os
import struct
import time
from typing import Any

MOST = 4096
"""Connections that are told; a rank has two per peer."""
LIMIT_S = 0.5
STATES = (
    "UNKNOWN", "ESTAB", "SYN-SENT", "SYN-RECV", "FIN-WAIT-1", "FIN-WAIT-2", "TIME-WAIT", "UNCONN", "CLOSE-WAIT",
    "LAST-ACK", "LISTEN", "CLOSING", "NEW-SYN-RECV",
)  # fmt: skip
_TIMERS = {1: "on", 2: "keepalive", 3: "timewait", 4: "persist"}
_HEAD = "State      Recv-Q Send-Q Local Address:Port Peer Address:Port"
_LISTEN, _TCP = 10, 6
_SOL_SOCKET, _SO_PROTOCOL, _TCP_INFO, _TCP_CONGESTION = 1, 38, 11, 13
_FIONREAD, _TIOCOUTQ = 0x541B, 0x5411

# struct tcp_info of <linux/tcp.h>; an older kernel tells less of it.
_INFO = struct.Struct("<8B24I4Q2I4I4Q2I2Q2I2I")
_NAMES = (
    "state", "ca_state", "retransmits", "probes", "backoff", "options", "wscale", "limited",
    "rto", "ato", "snd_mss", "rcv_mss", "unacked", "sacked", "lost", "retrans", "fackets", "last_data_sent",
    "last_ack_sent", "last_data_recv", "last_ack_recv", "pmtu", "rcv_ssthresh", "rtt", "rttvar", "snd_ssthresh",
    "snd_cwnd", "advmss", "reordering", "rcv_rtt", "rcv_space", "total_retrans",
    "pacing_rate", "max_pacing_rate", "bytes_acked", "bytes_received", "segs_out", "segs_in",
    "notsent_bytes", "min_rtt", "data_segs_in", "data_segs_out", "delivery_rate", "busy_time", "rwnd_limited",
    "sndbuf_limited", "delivered", "delivered_ce", "bytes_sent", "bytes_retrans", "dsack_dups", "reord_seen",
    "rcv_ooopack", "snd_wnd",
)  # fmt: skip

# The words of ss, and what they are called in the structure.
_SIZES = (("mss", "snd_mss"), ("pmtu",), ("rcvmss", "rcv_mss"), ("advmss",), ("cwnd", "snd_cwnd"))
_AGES = (("lastsnd", "last_data_sent"), ("lastrcv", "last_data_recv"), ("lastack", "last_ack_recv"))
_SUMS = (
    "bytes_sent", "bytes_retrans", "bytes_acked", "bytes_received", "segs_out", "segs_in", "data_segs_out",
    "data_segs_in",
)  # fmt: skip


def own() -> str:
    """Every TCP socket of this process. Descriptors are asked as they are: a copy of one would keep it open."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    lines, deadline = [_HEAD], time.monotonic() + LIMIT_S
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib is not imported into a job
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):  # noqa: PTH115
                continue
            lines += _own(libc, int(name))
        except (OSError, ValueError):  # closed meanwhile
            continue
        if len(lines) > 2 * MOST or time.monotonic() > deadline:
            break
    return "\n".join(lines) + "\n"


def _own(libc: Any, fd: int) -> list[str]:
    if struct.unpack("<i", _option(libc, fd, _SOL_SOCKET, _SO_PROTOCOL, 4).ljust(4, b"\0"))[0] != _TCP:
        return []
    raw = _option(libc, fd, _TCP, _TCP_INFO, _INFO.size)
    if not raw:
        return []
    info = dict(zip(_NAMES, _INFO.unpack(raw.ljust(_INFO.size, b"\0"))))  # noqa: B905 - not in every Python of a job
    here, there = _name(libc.getsockname, fd), _name(libc.getpeername, fd) or _wanted(fd, info["state"])
    state = info["state"] if info["state"] < len(STATES) else 0
    if state == _LISTEN:
        return [_line(state, info["unacked"], info["sacked"], here, there or _anybody(here))]
    line = _line(state, _waiting(fd, _FIONREAD), _waiting(fd, _TIOCOUTQ), here, there or _anybody(here))
    congestion = _option(libc, fd, _TCP, _TCP_CONGESTION, 16).split(b"\0")[0].decode("ascii", "replace")
    return [line, f"\t {congestion} {told(info)}"]


def _wanted(fd: int, state: int) -> str:
    """Whom a connection that is not made yet is to lead to: only the kernel's table tells."""
    if STATES[state if state < len(STATES) else 0] != "SYN-SENT":
        return ""
    inode = os.readlink(f"/proc/self/fd/{fd}")[8:-1]  # noqa: PTH115
    for table in ("tcp", "tcp6"):
        with open(f"/proc/self/net/{table}", encoding="ascii") as stream:  # noqa: PTH123
            for row in stream:
                words = row.split()
                if len(words) > 9 and words[9] == inode:
                    return _end(words[2])
    return ""


def _line(state: int, received: int, sent: int, here: str, there: str) -> str:
    return f"{STATES[state]:<10} {received:<6} {sent:<6} {here} {there}"


def _anybody(here: str) -> str:
    return "[::]:*" if here.startswith("[") else "0.0.0.0:*"


def told(info: dict[str, int]) -> str:
    """The values as `ss -i` prints them: times in milliseconds, what is zero left out where ss does."""
    words = [
        f"wscale:{info['wscale'] & 15},{info['wscale'] >> 4}",
        f"rto:{_ms(info['rto'])}",
        f"backoff:{info['backoff']}" if info["backoff"] else "",
        f"rtt:{_ms(info['rtt'])}/{_ms(info['rttvar'])}",
        f"ato:{_ms(info['ato'])}" if info["ato"] else "",
    ]
    words += [_counted(info, *pair) for pair in _SIZES]
    words += [f"ssthresh:{info['snd_ssthresh']}" if info["snd_ssthresh"] < 0xFFFF else ""]
    words += [_counted(info, name) for name in _SUMS]
    words += [_counted(info, *pair) for pair in _AGES]
    for name in ("pacing_rate", "delivery_rate"):
        if info[name] and info[name] < 1 << 63:
            words.append(f"{name} {info[name] * 8}bps")
    words += [_counted(info, "delivered"), "app_limited" if info["limited"] & 1 else ""]
    words += _shares(info)
    words.append(_counted(info, "unacked"))
    if info["retrans"] or info["total_retrans"]:
        words.append(f"retrans:{info['retrans']}/{info['total_retrans']}")
    words += [_counted(info, name) for name in ("dsack_dups", "lost", "sacked", "reord_seen")]
    words.append(f"rcv_rtt:{_ms(info['rcv_rtt'])}" if info["rcv_rtt"] else "")
    words += [_counted(info, *pair) for pair in (("rcv_space",), ("rcv_ssthresh",), ("notsent", "notsent_bytes"))]
    words.append(f"minrtt:{_ms(info['min_rtt'])}" if 0 < info["min_rtt"] < 0xFFFFFFFF else "")
    words += [_counted(info, "rcv_ooopack"), _counted(info, "snd_wnd")]
    return " ".join(word for word in words if word)


def _shares(info: dict[str, int]) -> list[str]:
    busy = info["busy_time"]
    if not busy:
        return []
    shares = [f"{name}:{info[name] // 1000}ms({100 * info[name] / busy:.1f}%)"
              for name in ("rwnd_limited", "sndbuf_limited") if info[name]]  # fmt: skip
    return [f"busy:{busy // 1000}ms", *shares]


def _counted(info: dict[str, int], word: str, name: str = "") -> str:
    value = info[name or word]
    return f"{word}:{value}" if value else ""


def _ms(microseconds: int) -> str:
    return f"{microseconds / 1000:.3f}".rstrip("0").rstrip(".")


def _option(libc: Any, fd: int, level: int, name: int, size: int) -> bytes:
    import ctypes

    room, length = ctypes.create_string_buffer(size), ctypes.c_uint32(size)
    if libc.getsockopt(fd, level, name, room, ctypes.byref(length)) != 0:
        return b""
    return room.raw[: length.value]


def _name(call: Any, fd: int) -> str:
    """An address as ss writes it; empty where there is none (yet)."""
    import ctypes

    room, length = ctypes.create_string_buffer(128), ctypes.c_uint32(128)
    if call(fd, room, ctypes.byref(length)) != 0:
        return ""
    family, port = struct.unpack_from("<H", room.raw)[0], struct.unpack_from(">H", room.raw, 2)[0]
    raw = room.raw[4:8] if family == 2 else room.raw[8:24]
    return shown(raw, port)


def shown(raw: bytes, port: int) -> str:
    import socket

    word = "*" if not port else str(port)
    if len(raw) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, raw)}:{word}"
    return f"[{socket.inet_ntop(socket.AF_INET6, raw)}]:{word}"


def _waiting(fd: int, question: int) -> int:
    import fcntl

    try:
        return int(struct.unpack("<i", fcntl.ioctl(fd, question, b"\0\0\0\0"))[0])
    except OSError:
        return 0


def of_process(pid: int) -> str:
    """The sockets of another process, in the form of `ss -tan -o`: what /proc says without asking it."""
    mine = set()
    for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
        try:
            link = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115
        except OSError:
            continue
        if link.startswith("socket:["):
            mine.add(link[8:-1])
    lines = [_HEAD]
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{table}", encoding="ascii") as stream:  # noqa: PTH123
                rows = [row.split() for row in stream]
        except OSError:
            continue
        lines += [_row(row) for row in rows[1:] if len(row) > 9 and row[9] in mine][: MOST - len(lines)]
    return "\n".join(lines) + "\n"


def _row(row: list[str]) -> str:
    state = int(row[3], 16)
    sent, _, received = row[4].partition(":")
    active, _, when = row[5].partition(":")
    line = _line(state if state < len(STATES) else 0, int(received, 16), int(sent, 16), _end(row[1]), _end(row[2]))
    timer = _TIMERS.get(int(active, 16))
    if timer is None:
        return line
    return f"{line} timer:({timer},{_timer(int(when, 16) * 1000 // os.sysconf('SC_CLK_TCK'))},{int(row[6], 16)})"


def _end(text: str) -> str:
    address, _, port = text.partition(":")
    words = struct.pack(f"={len(address) // 8}I", *(int(address[at : at + 8], 16) for at in range(0, len(address), 8)))
    return shown(words, int(port, 16))


def _timer(milliseconds: int) -> str:
    """As ss writes it: `6min41sec`, `12sec`, `1.200ms` for 1.2 seconds, `200ms`."""
    seconds, rest = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    if minutes:
        return f"{minutes}min" + (f"{seconds}sec" if seconds and minutes <= 9 else "")
    if seconds:
        return f"{seconds}.{rest:03d}ms" if rest and seconds <= 9 else f"{seconds}sec"
    return f"{rest:03d}ms"
