"""Opening a trace: is it one, and its bytes piece by piece, whatever it is compressed with."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from whichrank.evidence.compressed import Gzip, Inflated, Stream, inflate
from whichrank.evidence.packed import compression
from whichrank.model.contracts import Item
from whichrank.model.errors import UnreadableError

PIECE = 1 << 18
"""Fits a core's cache: larger pieces are read from memory twice, once unpacked and once joined."""
FAR = 1 << 20
"""How much of a file is searched for the list of events."""
_KINETO = (b'"schemaVersion"', b'"deviceProperties"')
_ARRAY = re.compile(rb'\s*\[\s*\{\s*"')
_OBJECT = re.compile(rb'\{\s*"[^"\\]{1,100}"\s*:')
_EVENT = re.compile(rb'"ph"\s*:\s*"[A-Za-z]"')


def is_trace(head: bytes) -> bool:
    """Whether a file that starts with these bytes is a trace in Chrome's format, compressed or not."""
    plain = _inflated(head)
    if plain.startswith(b"{"):
        return b'"traceEvents"' in plain or all(word in plain for word in _KINETO)
    return bool(_ARRAY.match(plain)) and bool(_EVENT.search(plain[:65_536]))


def is_trace_file(item: Item) -> bool:
    """The same for a file: what was noted beside the events may stand before them and be long."""
    head = item.head()
    if is_trace(head):
        return True
    plain = _inflated(head)
    return _OBJECT.match(plain) is not None and is_trace(item.head(FAR))


def _inflated(head: bytes) -> bytes:
    """The plain bytes, without a byte-order mark and space before them."""
    return _plain(head).lstrip(b"\xef\xbb\xbf \t\r\n")


def _plain(head: bytes) -> bytes:
    kind = compression(head)
    if kind == "gz":
        with suppress(zlib.error):
            return zlib.decompressobj(wbits=31).decompress(head, FAR)
        return b""
    if kind:
        import io

        with suppress(UnreadableError):
            return inflate(io.BytesIO(head), kind).read(FAR)
        return b""
    return head


@contextmanager
def pieces(path: Path, size: int = 0) -> Iterator[Pieces]:
    """The plain bytes of a trace, one piece after another."""
    with path.open("rb") as raw:
        yield Pieces(raw, size or PIECE)


class Pieces:
    """Iterates over pieces of about a megabyte; `cut` tells afterwards why the data ended early, if it did."""

    def __init__(self, raw: BinaryIO, size: int) -> None:
        head = raw.read(8)
        raw.seek(0)
        self.raw, self.size, self.kind, self.cut = raw, size, compression(head), ""

    def __iter__(self) -> Iterator[bytes]:
        if not self.kind:
            while data := self.raw.read(self.size):
                yield data
            return
        stream = _fast(self.raw) if self.kind == "gz" else inflate(self.raw, self.kind)
        while data := stream.read(self.size):
            yield data
        self.cut = stream.cut


def _fast(raw: BinaryIO) -> Stream:
    """gzip with Intel's decompressor where it is installed: about twice as fast."""
    try:
        isal: Any = import_module("isal.isal_zlib")
    except ImportError:
        return inflate(raw, "gz")
    return Inflated(raw, lambda: Gzip(isal.decompressobj(wbits=31)), isal.IsalError)
