"""Sizes and times as launch files write them: `64m`, `1Gi`, `infinity`; `20`, `90s`, `1min 30s`."""

from __future__ import annotations

import re

SHARED_MEMORY = "/dev/shm"  # noqa: S108 where the kernel has it
PLENTY = 1 << 62
CONTAINER_DEFAULT = 64 << 20
"""Bytes of /dev/shm that docker, containerd and CRI-O give where nothing is said."""
_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def size(text: str) -> int | None:
    """Bytes; None for no limit and for what is not known."""
    match = re.fullmatch(r"\s*(\d{1,18})(?:\.\d+)?\s*([bkmgt]?)(?:i?b?)\s*", text.strip("\"'").lower())
    return int(match[1]) << _UNITS[match[2]] if match else None


_SECONDS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hr": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"\s{0,8}(\d{1,9})\s{0,8}(ms|sec|min|hr|[smhd])?(?:onds?|utes?|s)?(?![a-z])")


def seconds(text: str) -> int | None:
    """A time span, in seconds where no unit is given; None for no limit and for what is not known."""
    text = text.strip("\"' ").lower()
    spans = list(_SPAN.finditer(text))
    if not spans or "".join(span.group() for span in spans) != text:
        return None
    return int(sum(int(span[1]) * _SECONDS[span[2] or "s"] for span in spans))
