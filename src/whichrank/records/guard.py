"""What the guard inside a rank has written: one record per line, in order."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from whichrank.model.evidence import Ref

FIRST = (b'{"t":"start","rank":', b'{"t": "off"')
"""How a file of records begins: with the start, or the refusal, of a guard."""


class GuardNote(Struct, frozen=True):
    """One line: its number, and what it says. Keys are those of `worker/guard`; values have been checked."""

    line: int
    said: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.said["t"])


class GuardFile(Struct):
    """The records of one process."""

    source: str
    rank: int
    world: int
    attempt: int = 0
    host: str | None = None
    pid: int | None = None
    gpu: int | None = None
    gpu_uuid: str | None = None
    gpu_serial: str | None = None
    notes: list[GuardNote] = field(default_factory=list)

    def ref(self, line: int, quote: str) -> Ref:
        return Ref(self.source, f"line {line}", quote, self.rank, self.host)
