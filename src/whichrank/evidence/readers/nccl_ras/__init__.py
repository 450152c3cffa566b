"""Answers of NCCL's RAS (2.24 and later): STATUS as text or JSON, and MONITOR events."""

from __future__ import annotations

import re

from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError

NAME = "nccl_ras"

# A rank takes about 450 bytes in JSON: room for 16,384 ranks in eighteen communicators each.
_LIMIT = 128 << 20
_TEXT_MARKS = (b"SERVER PROTOCOL ", b" compiled with CUDA ", b"=== RAS Diagnostics ===")
_EVENT = re.compile(rb"\] PEER_[A-Z_]{3,40}: |\"event\":\s{0,8}\"PEER_")
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,32}[@-~]")


def sniff(head: bytes, name: str) -> bool:
    """Whether the file begins as an answer of RAS."""
    del name
    if b'"nccl_version"' in head and b'"communicators' in head:
        return True
    return any(mark in head for mark in _TEXT_MARKS) or (b"PEER_" in head and _EVENT.search(head) is not None)


def read(item: Item) -> Reading:
    """Every report in this file."""
    if item.size > _LIMIT:
        raise UnreadableError(f"{item.label}: {item.size} bytes is no RAS report")
    try:
        data = item.read()[:_LIMIT]
    except OSError as error:
        raise UnreadableError(f"{item.label}: {error.strerror or error}") from error
    return scan(data, item.label)


def scan(data: bytes, source: str) -> Reading:
    """Every report in this text."""
    from whichrank.evidence.readers.nccl_ras.json_report import read_json
    from whichrank.evidence.readers.nccl_ras.text_report import read_text  # many patterns, and most evidence has none

    text = data.decode("utf-8", "replace")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    reports = [*read_text(text, source), *read_json(text, source)]
    if not reports:
        return Reading([], "unusable", "no RAS report")
    broken = sum(not report.complete for report in reports)
    return Reading(list(reports), "partial" if broken else "complete", f"{broken} reports break off" if broken else "")
