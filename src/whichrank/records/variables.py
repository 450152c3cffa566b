"""What the training code of a rank holds where it stands: counts, flags and lengths by name."""

from __future__ import annotations

from msgspec import Struct


class HeldFrame(Struct, frozen=True):
    """One frame of the training code."""

    file: str
    line: int
    function: str
    values: dict[str, int | bool]
    """By name: `step`, `len(batches)`, `self.skipped`."""

    @property
    def place(self) -> str:
        """`train.py:98`"""
        return f"{self.file.rpartition('/')[2]}:{self.line}"


class Variables(Struct, frozen=True):
    """The frames of a rank, the innermost first."""

    rank: int
    source: str
    frames: tuple[HeldFrame, ...]
