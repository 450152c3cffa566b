"""The file of a summary: a line that says what it is, then everything else, compressed.

A part for each file that was read: its name, size and print, what the reader said of it, and its records.
"""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from whichrank.evidence.summary import dumps, smaller, values
from whichrank.evidence.summary.head import MAGIC
from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.model.evidence import Quality, Source
from whichrank.records.dump import Dump
from whichrank.records.nccl import NcclLog
from whichrank.records.network import TcpSocket

_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "pb": 0, "dict_size": 1 << 20}]
_MEMORY = 64 << 20
_MOST = 512 << 20
"""Unpacked; a node's summary has some 100 KB."""
_ENDS = 1 << 16
_NAMED = 4
SHORTENED = "its end, in a summary"


class Part(Struct):
    """What became of one file."""

    item: Item
    readings: list[tuple[str, Reading]] = field(default_factory=list)
    mark: bytes = b""
    """The print of the file that it was made from."""
    text: bytes = b""
    """What is kept of a text, each line at its place."""


class Summary(Struct):
    """All parts, and what the intake refused."""

    parts: list[Part] = field(default_factory=list)
    refused: list[Source] = field(default_factory=list)


class Taken(Struct):
    """What all summaries together say."""

    outcomes: list[tuple[Item, list[tuple[str, Reading]]]] = field(default_factory=list)
    noted: list[Source] = field(default_factory=list)
    shortened: dict[int, str] = field(default_factory=dict)
    """Rank -> its whole dump, where only the end of it is in a summary."""


def mark_of(item: Item) -> bytes:
    """The same for a copy of a file, wherever it lies: by its size, its beginning and its end."""
    digest = hashlib.sha256(str(item.size).encode())
    try:
        with item.path.open("rb") as stream:
            digest.update(stream.read(_ENDS))
            stream.seek(max(0, item.size - _ENDS))
            digest.update(stream.read(_ENDS))
    except OSError:
        return b""
    return digest.digest()[:8]


def pack(summary: Summary) -> bytes:
    """The bytes of the file."""
    shared = dumps.Shared()
    parts = [
        {
            "path": part.item.label, "size": part.item.size, "mtime_ns": part.item.mtime_ns, "job": part.item.job,
            "mark": part.mark, "text": part.text,
            "readings": [
                {"reader": name, "quality": reading.quality, "note": reading.note,
                 "records": [_packed(record, shared) for record in reading.records]}
                for name, reading in part.readings
            ],
        }
        for part in summary.parts
    ]  # fmt: skip
    refused = [[source.path, source.reader, source.quality, source.note] for source in summary.refused]
    document = {"parts": parts, "shared": shared.packed, "refused": refused}
    packed = msgspec.msgpack.encode(document)
    return MAGIC + lzma.compress(packed, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, filters=_FILTERS)


def _packed(record: Any, shared: dumps.Shared) -> list[Any]:
    if isinstance(record, Dump):
        return ["Dump", dumps.packed(dumps.shortened(record), len(record), shared)]
    if isinstance(record, TcpSocket):
        record = smaller.connection(record)
    elif isinstance(record, NcclLog):
        record = smaller.nccl_log(record)
    return values.plain(record)


class _Reading(msgspec.Struct):
    reader: str
    quality: Quality
    note: str
    records: list[Any]


class _Part(msgspec.Struct):
    path: str
    size: int
    mtime_ns: int
    job: str
    mark: Any
    """Bytes; text in summaries of earlier versions, which matches no file."""
    readings: list[_Reading]
    text: bytes = b""


class _Document(msgspec.Struct):
    parts: list[_Part]
    shared: list[bytes]
    refused: list[tuple[str, str, Quality, str]]


def unpack(data: bytes, path: Path, tables: dumps.Tables) -> Summary:
    """The parts of a summary; a damaged record costs itself."""
    if not data.startswith(MAGIC):
        raise UnreadableError("not a summary")
    opened = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
    try:
        raw = opened.decompress(data[len(MAGIC) :], _MOST)
        if not opened.eof:
            raise UnreadableError("the summary is cut off or too large")
        document = msgspec.msgpack.decode(raw, type=_Document)
    except (lzma.LZMAError, msgspec.MsgspecError, EOFError, RecursionError) as error:
        raise UnreadableError(f"a damaged summary: {error}"[:200]) from error
    found = Summary(refused=[Source(*row) for row in document.refused])
    for part in document.parts:
        item = Item(path, part.path, part.size, part.mtime_ns, part.job, part.text)
        readings = [(reading.reader, _restored(reading, document.shared, tables)) for reading in part.readings]
        mark = part.mark if isinstance(part.mark, bytes) else b""
        found.parts.append(Part(item, readings, mark, part.text))
    return found


def _restored(reading: _Reading, shared: Sequence[bytes], tables: dumps.Tables) -> Reading:
    records: list[Any] = []
    notes = [reading.note] if reading.note else []
    quality = reading.quality
    for value in reading.records:
        try:
            if isinstance(value, list) and value[:1] == ["Dump"] and len(value) == 2:
                dump, whole = dumps.unpacked(value[1], shared, tables)
                records.append(dump)
                if whole > len(dump):
                    notes.append(f"{SHORTENED}: {len(dump)} of its {whole:,} calls")
            else:
                record = values.restored(value)
                records.append(smaller.whole_connection(record) if isinstance(record, TcpSocket) else record)
        except UnreadableError as error:
            quality = "partial"
            notes.append(error.message)
    return Reading(records, quality, "; ".join(dict.fromkeys(notes[:_NAMED])))


def take(items: Iterable[Item], beside: Sequence[Item], progress: Callable[[int, int], None] | None = None) -> Taken:
    """The parts of all summaries, without those whose whole file is there too; and what could not be read."""
    items, tables, taken = list(items), dumps.Tables(), Taken()
    whole = {mark_of(item) for item in beside}
    for done, item in enumerate(items, start=1):
        try:
            summary = unpack(item.read(), item.path, tables)
        except UnreadableError as error:
            taken.noted.append(Source(item.label, "summary", "unusable", error.message))
            continue
        taken.noted += summary.refused
        for part in summary.parts:
            if part.mark and part.mark in whole:
                continue
            taken.outcomes.append((part.item, part.readings))
            for _, reading in part.readings:
                if SHORTENED in reading.note:
                    own = (r.rank for r in reading.records if isinstance(r, Dump) and r.rank is not None)
                    taken.shortened |= dict.fromkeys(own, part.item.label)
        if progress is not None:
            progress(done, len(items))
    return taken
