"""A connection without large packets, for ssh's ProxyCommand: python -m whichrank.fleet.small_packets HOST PORT.

Where a path swallows large packets, ssh connects and then hangs in its key exchange. The segment size that this end
announces holds for both directions, needs no root, and lets ssh through.
"""

from __future__ import annotations

import os
import select
import socket
import sys

SEGMENT = 500
_MOST = 1 << 16


def connect(host: str, port: int) -> socket.socket:
    """By the first address that answers."""
    trouble: OSError = OSError(f"{host} does not resolve")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        one = socket.socket(family, kind, protocol)
        try:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
            one.connect(address)
        except OSError as error:
            trouble = error
            one.close()
        else:
            return one
    raise trouble


def relay(one: socket.socket) -> None:
    """Between the connection and the standard streams, until the other side is done."""
    sources: list[int] = [0, one.fileno()]
    while True:
        for ready in select.select(sources, [], [])[0]:
            data = os.read(ready, _MOST)
            if ready == 0 and not data:
                sources.remove(0)
                one.shutdown(socket.SHUT_WR)
            elif ready == 0:
                one.sendall(data)
            elif not data:
                return
            else:
                while data:
                    data = data[os.write(1, data) :]


if __name__ == "__main__":
    with connect(sys.argv[1], int(sys.argv[2])) as connection:
        relay(connection)
