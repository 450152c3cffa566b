"""Sizes of memory as launch files write them: `64m`, `1Gi`, `65536`, `infinity`."""

from __future__ import annotations

import re

_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def size(text: str) -> int | None:
    """Bytes; None for no limit and for what is not known."""
    match = re.fullmatch(r"\s*(\d{1,18})(?:\.\d+)?\s*([bkmgt]?)(?:i?b?)\s*", text.strip("\"'").lower())
    return int(match[1]) << _UNITS[match[2]] if match else None
