"""TCP sockets as `ss` prints them, on one line or two; of one rank or of a whole host."""

from __future__ import annotations

import re

from whichrank.evidence.readers.sockets.lines import Line, details, socket_line
from whichrank.evidence.text.host_of_path import host_of_path
from whichrank.evidence.text.path_hint import hint_of_path
from whichrank.evidence.text.plain_lines import plain_lines, reading_of
from whichrank.evidence.text.text_file import is_text
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.network import TcpSocket

NAME = "sockets"

_MOST = 64 << 20
_LONGEST = 4096
_MOST_SOCKETS = 1 << 16
_IDLE_KEPT = 64
_CARRIED = 4096
"""Libraries connect everybody with everybody: of connections that never carried this much, some are enough."""
_HEADING = re.compile(
    rb"^(?:(?:Netid\s+)?State\s+)?Recv-Q\s+Send-Q\s+Local Address:Port\s+Peer Address:Port", re.MULTILINE
)
_ASKED = re.compile(r"\bss\b.{0,80}\bstate ([a-z-]{4,14})\b")
_CALLED = {"established": "ESTAB", "syn-sent": "SYN-SENT", "syn-recv": "SYN-RECV", "close-wait": "CLOSE-WAIT"}
_ONE_STATE = "Recv-Q"
"""How the heading begins where only sockets of one state were asked for."""


def sniff(head: bytes, name: str) -> bool:  # noqa: ARG001
    """True for text with the heading of ss."""
    return b"Recv-Q" in head and is_text(head) and bool(_HEADING.search(head))


def read(item: Item) -> Reading:
    """One `TcpSocket` per connection."""
    pile = _Pile(item)
    for number, line in plain_lines(item, _MOST):
        pile.feed(number, line[:_LONGEST])
    pile.end()
    if not pile.sockets:
        return Reading([], "complete", "no connection in it")
    return reading_of(item, [*pile.sockets], _MOST, whole=not pile.full)


class _Pile:
    """Lines in, sockets out."""

    def __init__(self, item: Item) -> None:
        self.sockets: list[TcpSocket] = []
        self.full = False
        self._label = item.label
        self._rank = hint_of_path(item.label).rank
        self._host = host_of_path(item.label)
        self._open: Line | None = None
        self._idle = 0
        self._asked = self._state = ""

    def feed(self, number: int, text: str) -> None:
        if asked := _ASKED.search(text):
            self._asked = _CALLED.get(asked[1].lower(), "")
        elif "Recv-Q" in text:
            self._state = f"{self._asked} " if self._asked and text.lstrip().startswith(_ONE_STATE) else ""
        line = socket_line(number, self._state + text.lstrip() if self._state and text[:1].isdigit() else text)
        if line is not None:
            self.end()
            self._open = line
        elif self._open is not None and text[:1] in ("\t", " "):
            details(self._open, text)
        else:
            self.end()

    def end(self) -> None:
        """The socket that was begun is whole."""
        line, self._open = self._open, None
        if line is None:
            return
        if len(self.sockets) >= _MOST_SOCKETS:
            self.full = True
        elif self._worth(line):
            self.sockets.append(self._socket(line))

    def _worth(self, line: Line) -> bool:
        carried = max(line.values.get("bytes_sent", 0.0), line.values.get("bytes_received", 0.0))
        if line.state != "ESTAB" or line.recv_queue or line.send_queue or not line.values or carried >= _CARRIED:
            return True
        self._idle += 1
        return self._idle <= _IDLE_KEPT

    def _socket(self, line: Line) -> TcpSocket:
        ref = Ref(self._label, f"line {line.number}", line.quote(), self._rank, self._host)
        return TcpSocket(
            ref, line.state, *line.local, *line.peer, line.recv_queue, line.send_queue,
            host=self._host, rank=self._rank, pid=line.pid, timer=line.timer, values=line.values,
        )  # fmt: skip
