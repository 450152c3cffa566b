"""One thing that differs between two runs."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Difference(Struct, frozen=True):
    """What differs, on both sides, and how likely it is the reason for the others (from 0 to 1)."""

    what: str
    a: str
    b: str
    suspicion: float
    why: str

    def as_json(self) -> dict[str, Any]:
        return {"what": self.what, "a": self.a, "b": self.b, "suspicion": self.suspicion, "why": self.why}
