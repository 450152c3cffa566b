"""A small HTTP server that can't hurt the job beside it: one thread, bounded clients, requests and patience.

A client that is slow, sends too much or comes with many others is dropped: nobody ever waits for one.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from dataclasses import dataclass

from whichrank.model.errors import UsageError

LONGEST_REQUEST = 8192
REQUEST_S = 5.0
"""From the first byte of a request to the last byte of its answer."""
STUCK_S = 20.0
"""A client that has not taken an event for so long is dropped; a browser comes back by itself when it can."""
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
            405: "Method Not Allowed", 421: "Misdirected Request", 431: "Request Header Fields Too Large",
            500: "Internal Server Error"}  # fmt: skip


@dataclass(slots=True)
class Client:
    """One connection."""

    connection: socket.socket
    until: float
    """When it is dropped."""
    heard: bytes = b""
    answer: bytes = b""
    """What is still to be sent."""
    streams: bool = False
    """Whether it stays connected after its answer, for events."""
    wanted: int = selectors.EVENT_READ


class SmallServer:
    """Bound when made, so that a port in use is told before the job starts; serves once started."""

    def __init__(self, place: tuple[str, int], option: str, most: int) -> None:
        """`option` is by what users choose the port; of more than `most` clients whoever was silent longest goes."""
        self.place, self.most = place, most
        self.clients: dict[socket.socket, Client] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=option.strip("-"), daemon=True)
        self._ready: selectors.BaseSelector
        host, port = place
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._listener = socket.create_server((host, port), family=family, backlog=most)
        except OSError as error:
            # Python's own text repeats the address; a failed look-up of a name has a number that is no errno.
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise UsageError(
                f"can't listen on {host}:{port} for {option}: {why}", f"Give {option} another port."
            ) from error
        self._listener.setblocking(False)

    def answer(self, client: Client) -> bytes:
        """The response to a whole request."""
        raise NotImplementedError

    def tick(self, *, last: bool) -> None:
        """After every look at the clients, and at the end."""

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def public(self) -> bool:
        """Whether other hosts can reach it."""
        return not str(self._listener.getsockname()[0]).startswith(("127.", "::1"))

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(3.0)
        self._listener.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as self._ready:
            self._ready.register(self._listener, selectors.EVENT_READ)
            while not self._stop.is_set():
                self._attend_all(0.25)
                for client in [c for c in self.clients.values() if c.until < time.monotonic()]:
                    self._drop(client)
                self.tick(last=False)
            self.tick(last=True)
            if any(client.answer for client in self.clients.values()):
                self._attend_all(0.2)
            for client in list(self.clients.values()):
                self._drop(client)

    def _attend_all(self, patience_s: float) -> None:
        for key, _ in self._ready.select(patience_s):
            if key.fileobj is self._listener:
                self._welcome()
            elif client := self.clients.get(key.fileobj):  # type: ignore[call-overload]
                self._attend(client)

    def _welcome(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # gone already, or no descriptors are left: the next look comes soon
            self._stop.wait(0.05)
            return
        if len(self.clients) >= self.most:
            self._drop(min(self.clients.values(), key=lambda c: c.until))
        connection.setblocking(False)
        self.clients[connection] = Client(connection, time.monotonic() + REQUEST_S)
        self._ready.register(connection, selectors.EVENT_READ)

    def _attend(self, client: Client) -> None:
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
            self.send(client, self.answer(client))
        elif len(client.heard) > LONGEST_REQUEST:
            self.send(client, response(431, "the request is too long\n"))

    def send(self, client: Client, data: bytes) -> None:
        """Send what the connection takes now; the rest follows when it takes more."""
        client.answer = data
        if client.streams:
            client.until = time.monotonic() + STUCK_S
        try:
            self._flush(client)
        except BlockingIOError:
            self._want(client, selectors.EVENT_WRITE)
        except OSError:
            self._drop(client)

    def _flush(self, client: Client) -> None:
        client.answer = client.answer[client.connection.send(client.answer) :]
        if client.answer or client.streams:
            self._want(client, selectors.EVENT_WRITE if client.answer else selectors.EVENT_READ)
        else:
            self._drop(client)

    def _want(self, client: Client, event: int) -> None:
        if event != client.wanted:
            client.wanted = event
            self._ready.modify(client.connection, event)

    def _drop(self, client: Client) -> None:
        self.clients.pop(client.connection, None)
        with contextlib.suppress(KeyError, ValueError):
            self._ready.unregister(client.connection)
        with contextlib.suppress(OSError):
            client.connection.shutdown(socket.SHUT_RDWR)
        client.connection.close()


def parsed(heard: bytes) -> tuple[str, str, list[str]] | bytes:
    """Method, target and headers of a request; or the response to what is none, or asks for a change."""
    first, *headers = heard.decode("latin-1").splitlines() or [""]
    words = first.split()
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return response(400, "this is not a request\n")
    if words[0] not in ("GET", "HEAD"):
        return response(405, "only GET: nothing can be changed here\n", more="Allow: GET, HEAD\r\n")
    return words[0], words[1], headers


def response(status: int, body: str, kind: str = "text/plain; charset=utf-8", more: str = "") -> bytes:
    """A whole response; `more` are further header lines."""
    data = body.encode("utf-8", "backslashreplace")
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
        f"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{more}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + data


def head_only(whole: bytes) -> bytes:
    """The same response to HEAD."""
    return whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
