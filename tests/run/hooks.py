"""A real web server that keeps what it gets, and answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Hook:
    """What was received, and the codes to answer with (the last one for all that follow)."""

    codes: list[int] = field(default_factory=lambda: [200])
    received: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/services/T000/SECRETPATH"


@contextmanager
def hook(*codes: int) -> Iterator[Hook]:
    kept = Hook(list(codes) or [200])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            kept.received.append(json.loads(body))
            kept.paths.append(self.path)
            kept.headers.append(dict(self.headers))
            code = kept.codes.pop(0) if len(kept.codes) > 1 else kept.codes[0]
            self.send_response(code)
            if code in (301, 302, 307):
                self.send_header("Location", f"http://127.0.0.1:{kept.port}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
