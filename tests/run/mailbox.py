"""A real SMTP server (RFC 5321, without encryption) that keeps what it gets."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import cast


@dataclass
class Mailbox:
    """What arrived; the codes to answer recipients with (the last one for all that follow)."""

    codes: list[int] = field(default_factory=lambda: [250])
    messages: list[EmailMessage] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    port: int = 0


@contextmanager
def mailbox(*codes: int) -> Iterator[Mailbox]:
    kept = Mailbox(list(codes) or [250])

    class Handler(socketserver.StreamRequestHandler):
        def answer(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

        def handle(self) -> None:
            self.answer("220 ready")
            while line := self.rfile.readline():
                words = line.decode().strip()
                kept.said.append(words)
                verb = words.upper().split(" ")[0]
                if verb == "DATA":
                    self.answer("354 go on")
                    lines = []
                    while (each := self.rfile.readline()) != b".\r\n":
                        lines.append(each[1:] if each.startswith(b"..") else each)
                    mail = message_from_bytes(b"".join(lines), policy=policy.default)
                    kept.messages.append(cast("EmailMessage", mail))
                    self.answer("250 taken")
                elif verb == "RCPT":
                    code = kept.codes.pop(0) if len(kept.codes) > 1 else kept.codes[0]
                    self.answer(f"{code} recipient")
                elif verb == "QUIT":
                    self.answer("221 bye")
                    return
                else:
                    self.answer("250 fine")

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    kept.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
