"""A small web server for one page and its stream of events: one thread, bounded in everything.

Who does not have the token gets nothing. The Host header must name this server, so that a page of somebody else can't
reach it under a name of its own (DNS rebinding). A browser that is slow misses events; it never holds up another one.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from whichrank.model.errors import UsageError
from whichrank.run.token import same_token

MOST_CLIENTS = 128
"""At a time; a newcomer takes the place of whoever has been silent the longest."""
LONGEST_REQUEST = 8192
REQUEST_S = 5.0
"""From the first byte of a request to the last byte of its answer."""
STUCK_S = 20.0
"""A browser that has not taken an event for so long is dropped; it comes back by itself when it can."""
EVERY_S = 1.0
_REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
            421: "Misdirected Request", 431: "Request Header Fields Too Large"}  # fmt: skip
_SAFE = (
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    "X-Frame-Options: DENY\r\nCross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\n"
)


@dataclass(slots=True)
class _Client:
    connection: socket.socket
    until: float
    heard: bytes = b""
    answer: bytes = b""
    streams: bool = False
    """Whether it gets every new event."""
    wanted: int = selectors.EVENT_READ


@dataclass(slots=True)
class Server:
    """Bound when made, so that a port in use is told before the job starts; serves once started."""

    place: tuple[str, int]
    page: str
    event: Callable[[], str]
    """The newest state, as one line of JSON; only asked for while somebody looks."""
    token: str
    _listener: socket.socket = field(init=False)
    _clients: dict[socket.socket, _Client] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _ready: selectors.BaseSelector = field(init=False)

    def __post_init__(self) -> None:
        host, port = self.place
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._listener = socket.create_server((host, port), family=family, backlog=MOST_CLIENTS)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise UsageError(
                f"can't listen on {host}:{port} for the page: {why}", "Give --web another port."
            ) from error
        self._listener.setblocking(False)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def public(self) -> bool:
        """Whether other hosts can reach it."""
        return not str(self._listener.getsockname()[0]).startswith(("127.", "::1"))

    @property
    def url(self) -> str:
        host = self.place[0]
        if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
            host = socket.gethostname()
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}/?token={self.token}"

    def start(self) -> None:
        self._thread = threading.Thread(target=self._serve, name="page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Everybody gets the last event, if they take it at once."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(3.0)
        self._listener.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as self._ready:
            self._ready.register(self._listener, selectors.EVENT_READ)
            due = 0.0
            while not self._stop.is_set():
                self._attend_all(0.25)
                now = time.monotonic()
                for client in [c for c in self._clients.values() if c.until < now]:
                    self._drop(client)
                if now >= due and self._watched():
                    due = now + EVERY_S
                    self._tell_all()
            if self._watched():
                self._tell_all()
                self._attend_all(0.2)
            for client in list(self._clients.values()):
                self._drop(client)

    def _attend_all(self, patience_s: float) -> None:
        for key, _ in self._ready.select(patience_s):
            if key.fileobj is self._listener:
                self._welcome()
            elif client := self._clients.get(key.fileobj):  # type: ignore[call-overload]
                self._attend(client)

    def _watched(self) -> bool:
        return any(client.streams for client in self._clients.values())

    def _tell_all(self) -> None:
        try:
            frame = f"data: {self.event()}\n\n".encode()
        except Exception as error:  # noqa: BLE001 - this look fails, the next may not
            frame = f": {type(error).__name__}\n\n".encode()
        for client in [c for c in self._clients.values() if c.streams and not c.answer]:
            self._send(client, frame)

    def _welcome(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # gone already, or no descriptors are left: the next look comes soon
            self._stop.wait(0.05)
            return
        if len(self._clients) >= MOST_CLIENTS:
            self._drop(min(self._clients.values(), key=lambda c: c.until))
        connection.setblocking(False)
        self._clients[connection] = _Client(connection, time.monotonic() + REQUEST_S)
        self._ready.register(connection, selectors.EVENT_READ)

    def _attend(self, client: _Client) -> None:
        try:
            if client.answer:
                self._flush(client)
                return
            data = client.connection.recv(LONGEST_REQUEST)
        except BlockingIOError:
            return
        except OSError:
            self._drop(client)
            return
        if client.streams or not data:  # nothing more is expected of it: it has closed, or talks nonsense
            self._drop(client)
            return
        client.heard += data
        if b"\r\n\r\n" in client.heard or b"\n\n" in client.heard:
            self._send(client, self._answer(client))
        elif len(client.heard) > LONGEST_REQUEST:
            self._send(client, _response(431, "the request is too long\n"))

    def _send(self, client: _Client, data: bytes) -> None:
        client.answer = data
        if client.streams:
            client.until = time.monotonic() + STUCK_S
        with contextlib.suppress(BlockingIOError):
            try:
                self._flush(client)
            except BlockingIOError:
                raise
            except OSError:
                self._drop(client)

    def _flush(self, client: _Client) -> None:
        client.answer = client.answer[client.connection.send(client.answer) :]
        if client.answer or client.streams:
            wanted = selectors.EVENT_WRITE if client.answer else selectors.EVENT_READ
            if wanted != client.wanted:
                client.wanted = wanted
                self._ready.modify(client.connection, wanted)
        else:
            self._drop(client)

    def _drop(self, client: _Client) -> None:
        self._clients.pop(client.connection, None)
        with contextlib.suppress(KeyError, ValueError):
            self._ready.unregister(client.connection)
        with contextlib.suppress(OSError):
            client.connection.shutdown(socket.SHUT_RDWR)
        client.connection.close()

    # -- requests

    def _answer(self, client: _Client) -> bytes:
        first, *headers = client.heard.decode("latin-1").splitlines() or [""]
        words = first.split()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(400, "this is not a request\n")
        if words[0] not in ("GET", "HEAD"):
            return _response(405, "only GET: nothing can be changed here\n", more="Allow: GET, HEAD\r\n")
        if not self._is_me(headers):
            return _response(421, "this server is not called that\n")
        asked = urlsplit(words[1])
        given = parse_qs(asked.query).get("token", [""])[0]
        if not same_token(given, self.token):
            return _response(403, "the token is missing or wrong: open the address that whichrank printed\n")
        if asked.path == "/":
            whole = _response(200, self.page, "text/html; charset=utf-8", _policy())
            return whole if words[0] == "GET" else whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        if asked.path != "/events" or words[0] != "GET":
            return _response(404, "there is only the page\n")
        client.streams = True
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{_SAFE}Connection: close\r\n\r\nretry: 2000\n\n"
        return head.encode() + f"data: {self.event()}\n\n".encode()

    def _is_me(self, headers: list[str]) -> bool:
        """Addresses, and this host's own names: what a foreign page would have to make up is another name."""
        named = [value.strip() for name, _, value in (h.partition(":") for h in headers) if name.lower() == "host"]
        if len(named) != 1:
            return False
        host = named[0].rpartition(":")[0] if named[0].rpartition("]")[2].startswith(":") or (
            "]" not in named[0] and ":" in named[0]
        ) else named[0]  # fmt: skip
        host = host.strip("[]").lower()
        if host in ("localhost", self.place[0].lower(), socket.gethostname().lower(), socket.getfqdn().lower()):
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True


def _policy() -> str:
    return (
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    )


def _response(status: int, body: str, kind: str = "text/plain; charset=utf-8", more: str = "") -> bytes:
    data = body.encode("utf-8", "backslashreplace")
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
        f"{_SAFE}{more}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + data
