"""How fast one TCP connection carries data to a peer, as the peer counts it."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from whichrank.evidence.probes.between.server import GREETING

_BLOCK = b"\0" * (1 << 20)
_TCP_INFO = 11
_SLACK_S = 5.0


def send(address: str, port: int, token: str, seconds: float) -> dict[str, Any]:
    """Gb/s by the receiver's clock, and how many segments had to be sent again."""
    with socket.create_connection((address, port), timeout=seconds + _SLACK_S) as one:
        one.recv(len(GREETING) + len(token) + 1)
        one.sendall(f"{token} {seconds}\n".encode())
        began, sent = time.monotonic(), 0
        try:
            while time.monotonic() - began < seconds + _SLACK_S:
                one.settimeout(max(0.1, seconds + _SLACK_S - (time.monotonic() - began)))
                sent += one.send(_BLOCK)
                one.setblocking(False)
                try:
                    said = one.recv(100)
                    break
                except BlockingIOError:
                    continue
            else:
                return {"gbits": None, "why": "the other side did not answer"}
        except TimeoutError:
            return {"gbits": 0.0, "why": "the data stopped on its way", "retransmits": _retransmits(one)}
        except OSError as error:
            return {"gbits": None, "why": error.strerror or str(error)}
        counted, took = said.split()
        gbits = int(counted) * 8 / 1e9 / float(took)
        return {"gbits": round(gbits, 6), "why": "", "retransmits": _retransmits(one)}


def _retransmits(one: socket.socket) -> int | None:
    """tcpi_total_retrans of <linux/tcp.h>."""
    try:
        return int(struct.unpack_from("I", one.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 104), 100)[0])
    except (OSError, struct.error):
        return None
