"""The elastic agent's table of failures, in the layouts of torch 1.9 and later."""

from __future__ import annotations

import re

from msgspec import Struct, field

from whichrank.records.events.launchers import ElasticFailure

_ROW = re.compile(r"^\s*\[(\d{1,7})\]:\s*$")
_FIELD = re.compile(r"^\s+(time|host|rank|exitcode|error_file|traceback|msg)\s*: ?(.*)$")
_RANK = re.compile(r"(\d{1,7}) \(local_rank: (\d{1,7})\)")
_EXIT = re.compile(r"(-?\d{1,9}) \(pid: (\d{1,10})\)")
_SIGNAL = re.compile(r"Signal (\d{1,3}) ")
_PATIENCE = 400
"""A row may hold a traceback, so the table outlives lines that are not its own."""


class Row(Struct):
    line: int
    event: ElasticFailure
    time: str = ""
    words: list[str] = field(default_factory=list)


class Table:
    """Fed with the lines of one speaker; rows come out when they are whole."""

    def __init__(self) -> None:
        self._open = False
        self._root = False
        self._row: Row | None = None
        self._idle = 0

    @property
    def open(self) -> bool:
        return self._open

    @property
    def rank(self) -> int | None:
        """The rank of the row that is being read."""
        return self._row.event.rank if self._row else None

    @staticmethod
    def opens(text: str) -> bool:
        bare = text.strip()
        return bare.startswith(("Root Cause", "Failures:", "Other Failures:")) or bare.endswith("FAILED")

    def feed(self, line: int, text: str) -> Row | None:
        """A row that this line ends, if any."""
        bare = text.strip()
        if self.opens(text):
            self._open, self._idle = True, 0
            self._root = bare.startswith("Root Cause")
            return self.end()
        if not self._open:
            return None
        self._idle += 1
        if self._idle > _PATIENCE:
            self._open = False
            return self.end()
        if bare.startswith(("=====", "-----", "*****")):
            return self.end()
        if _ROW.match(text):
            ended = self.end()
            self._row = Row(line, ElasticFailure(root=self._root), words=[bare])
            self._idle = 0
            return ended
        if self._row is not None and (match := _FIELD.match(text)):
            self._idle = 0
            self._fill(self._row, match[1], match[2].strip())
        return None

    def end(self) -> Row | None:
        row, self._row = self._row, None
        return row if row is not None and len(row.words) > 1 else None

    @staticmethod
    def _fill(row: Row, key: str, value: str) -> None:
        event = row.event
        row.words.append(f"{key}: {value[:200]}")
        if key == "time":
            row.time = value
        elif key == "host":
            # A full name from the resolver may end with the dot of the root zone.
            event.host = value[:253].rstrip(".")
        elif key == "rank" and (match := _RANK.match(value)):
            event.rank, event.local_rank = int(match[1]), int(match[2])
        elif key == "exitcode" and (match := _EXIT.match(value)):
            code = int(match[1])
            event.exitcode, event.pid = code, int(match[2])
            if code < 0:
                event.signal = -code
        elif key == "error_file" and value != "<N/A>":
            event.error_file = value[:1000]
        elif key in ("traceback", "msg"):
            _fill_words(event, value)


def _fill_words(event: ElasticFailure, value: str) -> None:
    if match := _SIGNAL.match(value):
        event.signal = int(match[1])
    elif value and not value.startswith("To enable traceback"):
        event.message = value[:1000]
