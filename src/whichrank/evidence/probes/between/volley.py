"""Datagrams that must not be fragmented, of several sizes: the other side counts what arrives.

Counted at the receiver, a volley tells loss and its direction; sizes tell the largest packet that the path carries.
Neither needs root, ping or ICMP.
"""

from __future__ import annotations

import errno
import socket
import time
from typing import Any

from whichrank.evidence.probes.between.server import family

_PROBE = 3
"""<linux/in.h>, <linux/in6.h>: never fragment, whatever the kernel believes of the path."""
_IP_MTU_DISCOVER, _IP_MTU = 10, 14
_IPV6_MTU_DISCOVER, _IPV6_MTU, _IPV6_DONTFRAG = 23, 24, 62
_HEADERS = {socket.AF_INET: 28, socket.AF_INET6: 48}
"""IP and UDP."""
_BURST, _PAUSE_S = 20, 0.001


def send(address: str, port: int, volley: str, sizes: dict[int, int]) -> dict[str, Any]:
    """`sent` by size of the whole packet, and for sizes that this host itself refused, why."""
    token, _, name = volley.partition(":")
    sent: dict[str, int] = {}
    unsent: dict[str, str] = {}
    kind = family(address)
    with socket.socket(kind, socket.SOCK_DGRAM) as one:
        if kind == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PROBE)
            one.setsockopt(socket.IPPROTO_IPV6, _IPV6_DONTFRAG, 1)
        else:
            one.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PROBE)
        one.connect((address, port))
        in_burst = 0
        for size, count in sizes.items():
            head = f"{token} {name} {size} ".encode()
            packet = head.ljust(max(len(head), size - _HEADERS[kind]), b".")
            for _ in range(count):
                try:
                    one.send(packet)
                except OSError as error:
                    if error.errno == errno.ECONNREFUSED:  # the answer to an earlier datagram
                        continue
                    if (
                        error.errno != errno.EPERM
                    ):  # that is a filter of this host, and the packet is lost like any other
                        unsent[str(size)] = error.strerror or str(error)
                        break
                sent[str(size)] = sent.get(str(size), 0) + 1
                in_burst += 1
                if in_burst % _BURST == 0:
                    time.sleep(_PAUSE_S)
        time.sleep(0.05)  # for an ICMP that says how much fits
        level = (socket.IPPROTO_IPV6, _IPV6_MTU) if kind == socket.AF_INET6 else (socket.IPPROTO_IP, _IP_MTU)
        known = one.getsockopt(*level)
    return {"sent": sent, "unsent": unsent, "path_mtu": known}
