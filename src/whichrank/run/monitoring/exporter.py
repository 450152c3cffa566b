"""The page /metrics: closed to those without the token, on this host alone unless another address is written out."""

from __future__ import annotations

from collections.abc import Callable

from whichrank.model.errors import UsageError
from whichrank.run.monitoring.exposition import CONTENT_TYPE
from whichrank.run.small_server import Client, SmallServer, head_only, parsed, response
from whichrank.run.token import same_token

HOST = "127.0.0.1"
PATH = "/metrics"
MOST_CLIENTS = 32


def address(text: str) -> tuple[str, int]:
    """`PORT`, `ADDRESS:PORT` or `[ADDRESS]:PORT`; without an address it is this host alone."""
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16) or (text.startswith(":")):
        raise UsageError(f"'{text}' is not an address to listen on", "Give PORT or ADDRESS:PORT, for example 9876.")
    return host or HOST, int(port)


class Exporter(SmallServer):
    """The page of metrics, for those who have the token."""

    def __init__(self, place: tuple[str, int], page: Callable[[], str], token: str | None = None) -> None:
        super().__init__(place, "--metrics", MOST_CLIENTS)
        self.page, self.token = page, token

    @property
    def url(self) -> str:
        host = f"[{self.place[0]}]" if ":" in self.place[0] else self.place[0]
        return f"http://{host}:{self.port}{PATH}"

    def answer(self, client: Client) -> bytes:
        request = parsed(client.heard)
        if isinstance(request, bytes):
            return request
        method, target, headers = request
        if self.token is not None and not self._known(headers):
            return response(401, "the token is missing or wrong\n", more="WWW-Authenticate: Bearer\r\n")
        if target.partition("?")[0] != PATH:
            return response(404, f"there is only {PATH}\n")
        try:
            whole = response(200, self.page(), CONTENT_TYPE)
        except Exception as error:  # noqa: BLE001 - one scrape fails, the next may not
            return response(500, f"{type(error).__name__}\n")
        return whole if method == "GET" else head_only(whole)

    def _known(self, headers: list[str]) -> bool:
        for header in headers:
            name, _, value = header.partition(":")
            if name.strip().lower() == "authorization":
                scheme, _, given = value.strip().partition(" ")
                return scheme.lower() == "bearer" and same_token(given.strip(), self.token or "")
        return False
