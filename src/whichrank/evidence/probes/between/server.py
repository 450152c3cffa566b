"""The passive side: accepts connections, swallows data, counts datagrams. One thread, bounded, for one run."""

from __future__ import annotations

import random
import selectors
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

GREETING = b"whichrank "
_BUFFER = 1 << 20
_MOST_VOLLEYS = 100_000
_HIGH, _TRIES = 8, 10


class Server:
    """Listens on ports as the kernel chooses them, on the rendezvous port if that is free, and for datagrams."""

    def __init__(self, token: str, rendezvous: int | None) -> None:
        self.token = token
        self.why = ""
        self._selector = selectors.DefaultSelector()
        self._counts: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()
        self._high = self._listen_on_high_ports()
        self._rendezvous = self._try(rendezvous) if rendezvous else None
        self._datagrams = _for_everybody(socket.SOCK_DGRAM)
        self._datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._datagrams.bind(("", 0))
        self._datagrams.setblocking(False)
        self._selector.register(self._datagrams, selectors.EVENT_READ, self._datagram)
        threading.Thread(target=self._run, daemon=True).start()

    def about(self) -> dict[str, Any]:
        return {
            "high": [one.getsockname()[1] for one in self._high], "udp": self._datagrams.getsockname()[1],
            "rendezvous": self._rendezvous.getsockname()[1] if self._rendezvous else None, "why": self.why,
        }  # fmt: skip

    def counts(self, volley: str) -> dict[str, int]:
        """Size -> how many datagrams of this volley have arrived."""
        self._datagram(self._datagrams)  # on a busy host they may still wait in the socket
        with self._lock:
            return {str(size): count for (name, size), count in self._counts.items() if name == volley}

    def _listen_on_high_ports(self) -> list[socket.socket]:
        """Spread over the ports that the kernel hands out: a firewall that blocks a part of them shows."""
        ports = _local_ports()
        part = max(1, len(ports) // _HIGH)
        found = [self._listen_on_one_of(ports[start : start + part]) for start in range(0, part * _HIGH, part)]
        return [one for one in found if one is not None] or [self._listen(0)]

    def _listen_on_one_of(self, ports: range) -> socket.socket | None:
        for port in random.sample(ports, min(_TRIES, len(ports))):
            with suppress(OSError):
                return self._listen(port)
        return None

    def _try(self, port: int) -> socket.socket | None:
        try:
            return self._listen(port)
        except OSError as error:
            self.why = f"port {port}: {error.strerror}"
            return None

    def _listen(self, port: int) -> socket.socket:
        listener = _for_everybody(socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", port))
        listener.listen(1024)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        return listener

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                try:
                    key.data(key.fileobj)
                except OSError:
                    if key.data != self._accept and key.fileobj is not self._datagrams:
                        self._close(key.fileobj)

    def _accept(self, listener: socket.socket) -> None:
        peer, _ = listener.accept()
        peer.setblocking(False)
        peer.send(GREETING + self.token.encode() + b"\n")
        state: dict[str, Any] = {"head": b"", "bytes": 0, "from": None, "told": False}
        self._selector.register(peer, selectors.EVENT_READ, lambda one: self._swallow(one, state))

    def _swallow(self, peer: socket.socket, state: dict[str, Any]) -> None:
        """After `TOKEN SECONDS\\n` count what comes within that time, and say so."""
        data = peer.recv(_BUFFER)
        if not data:
            self._close(peer)
        elif state["from"] is None:
            state["head"] += data
            line, newline, rest = state["head"].partition(b"\n")
            words = line.split()
            if newline and len(words) == 2 and words[0].decode("ascii", "replace") == self.token:
                state |= {"from": time.monotonic(), "bytes": len(rest), "seconds": float(words[1])}
            elif newline or len(state["head"]) > 200:
                self._close(peer)
        else:
            state["bytes"] += len(data)
            took = time.monotonic() - state["from"]
            # Closing now, with data unread, would reset the connection and lose the answer: the sender closes.
            if took >= state["seconds"] and not state["told"]:
                state["told"] = True
                peer.send(f"{state['bytes']} {took:.6f}\n".encode())

    def _datagram(self, _one: socket.socket) -> None:
        """Received and counted under one lock: what has left the socket is in the counts."""
        for _ in range(1 << 16):
            with self._lock:
                try:
                    data = self._datagrams.recv(1 << 16)
                except BlockingIOError:
                    return
                words = data[:200].split(b" ")
                known = len(words) >= 3 and words[0].decode("ascii", "replace") == self.token[:8]
                if known and words[2].isdigit() and len(self._counts) < _MOST_VOLLEYS:
                    self._counts[(words[1].decode("ascii", "replace"), int(words[2]))] += 1

    def _close(self, peer: Any) -> None:
        self._selector.unregister(peer)
        peer.close()


def family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _for_everybody(kind: socket.SocketKind) -> socket.socket:
    """A socket for IPv6 and IPv4; for IPv4 alone where the kernel has nothing else."""
    try:
        if not Path("/proc/net/if_inet6").read_text(encoding="ascii").strip():
            return socket.socket(socket.AF_INET, kind)
        one = socket.socket(socket.AF_INET6, kind)
    except OSError:
        return socket.socket(socket.AF_INET, kind)
    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return one


def _local_ports() -> range:
    """The ports that the kernel chooses from, where a program does not name one."""
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
        return range(int(first), int(last) + 1)
    except (OSError, ValueError):
        return range(32768, 61000)
