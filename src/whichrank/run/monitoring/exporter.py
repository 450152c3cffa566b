"""A small web server for one page, /metrics: one thread, bounded in everything, closed to those without the token.

It listens on this host alone unless another address is written out. A client that is slow, sends too much or comes
with many others is dropped: the job and its watcher never wait for one.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from whichrank.model.errors import UsageError
from whichrank.run.monitoring.exposition import CONTENT_TYPE
from whichrank.run.token import same_token

HOST = "127.0.0.1"
PATH = "/metrics"
MOST_CLIENTS = 32
"""At a time; a newcomer takes the place of the oldest."""
LONGEST_REQUEST = 8192
PATIENCE_S = 5.0
"""From the first byte asked to the last byte sent."""
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
            431: "Request Header Fields Too Large", 500: "Internal Server Error"}  # fmt: skip


def address(text: str) -> tuple[str, int]:
    """`PORT`, `ADDRESS:PORT` or `[ADDRESS]:PORT`; without an address it is this host alone."""
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16) or (text.startswith(":")):
        raise UsageError(f"'{text}' is not an address to listen on", "Give PORT or ADDRESS:PORT, for example 9876.")
    return host or HOST, int(port)


@dataclass(slots=True)
class _Client:
    connection: socket.socket
    until: float
    heard: bytes = b""
    answer: bytes = b""


@dataclass(slots=True)
class Exporter:
    """Bound when made, so that a port in use is told before the job starts; serves once started."""

    place: tuple[str, int]
    page: Callable[[], str]
    token: str | None = None
    _listener: socket.socket = field(init=False)
    _clients: dict[socket.socket, _Client] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        host, port = self.place
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._listener = socket.create_server((host, port), family=family, backlog=MOST_CLIENTS)
        except OSError as error:
            # Python's own text repeats the address; a failed look-up of a name has a number that is no errno.
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise UsageError(
                f"can't listen on {host}:{port} for metrics: {why}", "Give --metrics another port."
            ) from error
        self._listener.setblocking(False)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        host = f"[{self.place[0]}]" if ":" in self.place[0] else self.place[0]
        return f"http://{host}:{self.port}{PATH}"

    @property
    def public(self) -> bool:
        """Whether other hosts can reach it."""
        return not str(self._listener.getsockname()[0]).startswith(("127.", "::1"))

    def start(self) -> None:
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2.0)
        self._listener.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._listener, selectors.EVENT_READ)
            while not self._stop.is_set():
                for key, _ in ready.select(0.25):
                    if key.fileobj is self._listener:
                        self._welcome(ready)
                    elif client := self._clients.get(key.fileobj):  # type: ignore[call-overload]
                        self._attend(ready, client)
                for client in [c for c in self._clients.values() if c.until < time.monotonic()]:
                    self._drop(ready, client)
            for client in list(self._clients.values()):
                self._drop(ready, client)

    def _welcome(self, ready: selectors.BaseSelector) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # gone already, or no descriptors are left: the next look comes soon
            self._stop.wait(0.05)
            return
        if len(self._clients) >= MOST_CLIENTS:
            self._drop(ready, min(self._clients.values(), key=lambda c: c.until))
        connection.setblocking(False)
        self._clients[connection] = _Client(connection, time.monotonic() + PATIENCE_S)
        ready.register(connection, selectors.EVENT_READ)

    def _attend(self, ready: selectors.BaseSelector, client: _Client) -> None:
        try:
            if client.answer:
                client.answer = client.answer[client.connection.send(client.answer) :]
                if not client.answer:
                    self._drop(ready, client)
                return
            data = client.connection.recv(LONGEST_REQUEST)
        except BlockingIOError:
            return
        except OSError:
            self._drop(ready, client)
            return
        client.heard += data
        if b"\r\n\r\n" in client.heard or b"\n\n" in client.heard:
            client.answer = self._answer(client.heard)
        elif len(client.heard) > LONGEST_REQUEST:
            client.answer = _response(431, "the request is too long\n")
        elif not data:
            self._drop(ready, client)
            return
        if client.answer:
            ready.modify(client.connection, selectors.EVENT_WRITE)

    def _drop(self, ready: selectors.BaseSelector, client: _Client) -> None:
        self._clients.pop(client.connection, None)
        with contextlib.suppress(KeyError, ValueError):
            ready.unregister(client.connection)
        with contextlib.suppress(OSError):
            client.connection.shutdown(socket.SHUT_RDWR)
        client.connection.close()

    def _answer(self, request: bytes) -> bytes:
        first, *headers = request.decode("latin-1").splitlines()
        words = first.split()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(400, "this is no request\n")
        if words[0] not in ("GET", "HEAD"):
            return _response(405, "only GET\n", "Allow: GET, HEAD\r\n")
        if self.token is not None and not self._known(headers):
            return _response(401, "the token is missing or wrong\n", "WWW-Authenticate: Bearer\r\n")
        if words[1].partition("?")[0] != PATH:
            return _response(404, f"there is only {PATH}\n")
        try:
            whole = _response(200, self.page(), kind=CONTENT_TYPE)
        except Exception as error:  # noqa: BLE001 - one scrape fails, the next may not
            return _response(500, f"{type(error).__name__}\n")
        return whole if words[0] == "GET" else whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"

    def _known(self, headers: list[str]) -> bool:
        for header in headers:
            name, _, value = header.partition(":")
            if name.strip().lower() == "authorization":
                scheme, _, given = value.strip().partition(" ")
                return scheme.lower() == "bearer" and same_token(given.strip(), self.token or "")
        return False


def _response(status: int, body: str, more: str = "", kind: str = "text/plain; charset=utf-8") -> bytes:
    data = body.encode("utf-8", "backslashreplace")
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
        f"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{more}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + data
