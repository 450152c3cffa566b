"""Files that others write, read whole or their newest part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MOST = 256 << 20


def read(path: Path, limit: int = MOST) -> bytes:
    """The beginning of a file; empty where it can't be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(limit)
    except OSError:
        return b""


def modified_ns(path: Path | None) -> int | None:
    """When a file was written, by its own account."""
    try:
        return path.stat().st_mtime_ns if path is not None else None
    except OSError:
        return None


def tail(path: Path, limit: int, start: int = 0) -> bytes:
    """The end of a file from whole lines, nothing before `start`; empty where it can't be read."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            at = max(start, size - limit)
            stream.seek(at)
            data = stream.read(limit)
    except OSError:
        return b""
    return data.partition(b"\n")[2] if at > start else data


def document(path: Path) -> dict[str, Any]:
    """A small JSON object; empty where there is none."""
    try:
        content = json.loads(read(path, 1 << 20) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
