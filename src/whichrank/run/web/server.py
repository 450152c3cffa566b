"""The live page and its stream of events.

Who does not have the token gets nothing. The Host header must name this server, so that a page of somebody else can't
reach it under a name of its own (DNS rebinding). A browser that is slow misses events; it never holds up another one.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from whichrank.run.small_server import Client, SmallServer, head_only, parsed, response
from whichrank.run.token import same_token

MOST_CLIENTS = 128
EVERY_S = 1.0
_SAFE = (
    "Referrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\n"
)
_STREAM = (
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
    f"X-Content-Type-Options: nosniff\r\n{_SAFE}Connection: close\r\n\r\nretry: 2000\n\n"
)


class Server(SmallServer):
    """One page; `event` gives the newest state as one line of JSON and is only asked while somebody looks."""

    def __init__(self, place: tuple[str, int], page: str, event: Callable[[], str], token: str) -> None:
        super().__init__(place, "--web", MOST_CLIENTS)
        self.page, self.event, self.token = page, event, token
        self._due = 0.0

    @property
    def url(self) -> str:
        host = self.place[0]
        if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
            host = socket.gethostname()
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}/?token={self.token}"

    def tick(self, *, last: bool) -> None:
        """An event every second; the last one goes to whoever takes it at once."""
        watching = [client for client in self.clients.values() if client.streams]
        now = time.monotonic()
        if not watching or (now < self._due and not last):
            return
        self._due = now + EVERY_S
        try:
            frame = f"data: {self.event()}\n\n".encode()
        except Exception as error:  # noqa: BLE001 - this look fails, the next may not
            frame = f": {type(error).__name__}\n\n".encode()
        for client in watching:
            if not client.answer:
                self.send(client, frame)

    def answer(self, client: Client) -> bytes:
        request = parsed(client.heard)
        if isinstance(request, bytes):
            return request
        method, target, headers = request
        if not self._is_me(headers):
            return response(421, "this server is not called that\n", more=_SAFE)
        asked = urlsplit(target)
        given = parse_qs(asked.query).get("token", [""])[0]
        if not same_token(given, self.token):
            problem = "the token is missing or wrong: open the address that whichrank printed\n"
            return response(403, problem, more=_SAFE)
        if asked.path == "/":
            whole = response(200, self.page, "text/html; charset=utf-8", _SAFE + _policy())
            return whole if method == "GET" else head_only(whole)
        if asked.path != "/events" or method != "GET":
            return response(404, "there is only the page\n", more=_SAFE)
        client.streams = True
        return f"{_STREAM}data: {self.event()}\n\n".encode()

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
