"""Whether one file of a checkpoint is whole, by what its format has at its end. Nothing in it is loaded."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

from whichrank.evidence.pickle import inert
from whichrank.model.errors import UnreadableError

KNOWN = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".tar", ".npz", ".pkl", ".distcp")
DRAFTS = (".tmp", ".temp", ".part", ".partial", ".incomplete", ".lock", ".swp", "~")
HEADER = 100 << 20
"""Bytes of the longest header that safetensors itself accepts."""
READ = 32 << 20
"""Bytes of a header or an index that are read to look into it."""
_TAIL = (1 << 16) + 22  # the end record of a zip, with the longest comment
_END = b"PK\x05\x06"


def is_draft(name: str) -> bool:
    """Whether a name says that somebody is still writing, or died while writing."""
    return name.lower().endswith(DRAFTS) or name.startswith((".tmp", "tmp", "temp_"))


def problem(path: Path) -> str:
    """What is wrong with a file; "" where nothing is, or its format has no end that could be looked for."""
    try:
        size = path.stat().st_size
        if not size:
            return f"{path.name} is empty"
        if path.suffix == ".safetensors":
            return _safetensors(path, size)
        with path.open("rb") as stream:
            head = stream.read(8)
            stream.seek(max(0, size - _TAIL))
            tail = stream.read(_TAIL)
    except OSError as error:
        return f"{path.name} can't be read ({error.strerror})"
    if head.startswith(b"PK\x03\x04"):
        return "" if _zip_ends(tail, size) else f"{path.name} ends early: a zip without its end record"
    if not head.strip(b"\0"):
        return f"{path.name} begins with zeros: its content never reached the disk"
    if path.suffix == ".pkl" and head[:1] == b"\x80" and not tail.endswith(b"."):
        return f"{path.name} ends early: a pickle without its end"
    if path.suffix == ".json":
        return "" if document(path) is not None else f"{path.name} is no whole JSON"
    return ""


def _zip_ends(tail: bytes, size: int) -> bool:
    """Whether the end record is there, and the directory that it speaks of lies before it."""
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < 22:
        return False
    length, offset = map(int, struct.unpack_from("<II", tail, at + 12))
    end = size - len(tail) + at
    # 2**32 - 1 stands for "see the record for large files", which comes before this one.
    return offset == 0xFFFFFFFF or length == 0xFFFFFFFF or offset + length <= end


def _safetensors(path: Path, size: int) -> str:
    """A length, a header of that length, and as many bytes as the header gives away."""
    with path.open("rb") as stream:
        raw = stream.read(8)
        length = struct.unpack("<Q", raw)[0] if len(raw) == 8 else 0
        if not 2 <= length <= min(HEADER, max(0, size - 8)):
            return f"{path.name} ends early: its header is not there"
        header = stream.read(length) if length <= READ else b""
    try:
        rows = json.loads(header) if header else {}
        ends = [row["data_offsets"][1] for name, row in rows.items() if name != "__metadata__"]
        needed = 8 + length + max(ends, default=0)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
        return f"{path.name} has a header that makes no sense"
    return "" if size >= needed else f"{path.name} ends early: {size} of {needed} bytes"


def document(path: Path) -> Any:
    """A small JSON file; None where there is none, or not a whole one."""
    try:
        with path.open("rb") as stream:
            data = stream.read(READ + 1)
        return json.loads(data) if len(data) <= READ else None
    except (OSError, ValueError, RecursionError):
        return None


def saved_values(path: Path) -> inert.Pairs | None:
    """The outermost dict of what torch.save wrote, without its tensors; None where that can't be seen."""
    try:
        with zipfile.ZipFile(path) as archive:
            name = next((n for n in archive.namelist() if n.endswith("data.pkl") and n.count("/") == 1), None)
            if name is None or archive.getinfo(name).file_size > READ:
                return None
            value = inert.decode(archive.read(name))
    except (OSError, zipfile.BadZipFile, UnreadableError, ValueError, NotImplementedError, RuntimeError):
        return None
    return value if isinstance(value, inert.Pairs) else None


def changed_ns(path: Path) -> int:
    """When a file, or the newest file of a folder, was last written; 0 where that can't be known."""
    times = []
    try:
        rows = [path, *path.iterdir()] if path.is_dir() else [path]
    except OSError:
        rows = [path]
    for row in rows:
        try:
            times.append(os.stat(row).st_mtime_ns)  # noqa: PTH116
        except OSError:
            continue
    return max(times, default=0)
