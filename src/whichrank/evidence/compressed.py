"""Compressed data as a stream: decompressed piece by piece, in bounded memory, cut files read to the cut."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, BinaryIO, Protocol

from whichrank.evidence.packed import LONGEST_MAGIC, compression
from whichrank.model.errors import UnreadableError

CHUNK = 1 << 18
FED = 1 << 15
"""Compressed bytes at a time: what is not used up at once is copied again for every piece of the output."""
# Dictionaries of up to 64 MiB are what xz -9 and zstd --long=26 make; a header may ask for gigabytes.
MEMORY = 1 << 27

BROKEN: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error)


class Decompressor(Protocol):
    """What bz2, lzma and compression.zstd of the standard library have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class Gzip:
    """zlib's object, or one like it, with the manners of the others."""

    def __init__(self, inner: Any = None) -> None:
        self._inner = inner if inner is not None else zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max(max_length, 0))


class Stream(io.RawIOBase):
    """The decompressed side of a file; `read` may give less than asked for, and nothing at the end."""

    cut = ""
    """Why the data ended early, or nothing."""

    def readable(self) -> bool:
        return True


class Inflated(Stream):
    """One or more streams of one kind, one after another."""

    def __init__(self, raw: BinaryIO, make: Callable[[], Decompressor], *broken: type[Exception]) -> None:
        super().__init__()
        self._raw, self._make, self._now = raw, make, make()
        self._broken: tuple[type[Exception], ...] = (*BROKEN, *broken)
        self._left = b""

    def read(self, size: int = -1, /) -> bytes:
        if size == 0:
            return b""
        wanted = CHUNK if size < 0 else size
        while not self.cut:
            if self._now.eof and not self._next_stream():
                break
            data = b""
            if self._now.needs_input:
                data, self._left = self._left or self._raw.read(FED), b""
                if not data:
                    self.cut = "the compressed data ends too early"
                    break
            try:
                out = self._now.decompress(data, wanted)
            except self._broken as error:
                self.cut = f"the compressed data is damaged ({error})"
                break
            if out:
                return out
        return b""

    def _next_stream(self) -> bool:
        """Begin the stream that follows; padding and trailing rubbish are no stream."""
        rest = self._now.unused_data
        if len(rest) < LONGEST_MAGIC:
            rest += self._raw.read(FED)
        if not compression(rest):
            return False
        self._now, self._left = self._make(), rest
        return True


class _ZstandardPackage(Stream):
    """zstd before Python 3.14, where the standard library lacks it."""

    def __init__(self, raw: BinaryIO) -> None:
        super().__init__()
        try:
            import zstandard
        except ImportError as error:
            raise UnreadableError("reading zstd needs: pip install 'whichrank[zst]'") from error
        self._broken: type[Exception] = zstandard.ZstdError
        opened = zstandard.ZstdDecompressor(max_window_size=MEMORY)
        self._reader = opened.stream_reader(raw, read_size=CHUNK, read_across_frames=True)

    def read(self, size: int = -1, /) -> bytes:
        try:
            return b"" if self.cut else self._reader.read(CHUNK if size < 0 else size)
        except self._broken as error:
            self.cut = f"the compressed data is damaged ({error})"
            return b""


def inflate(raw: BinaryIO, kind: str) -> Stream:
    """Open a compressed file of a kind that `compression` has named."""
    if kind == "gz":
        return Inflated(raw, Gzip)
    if kind == "bz2":
        import bz2

        return Inflated(raw, bz2.BZ2Decompressor)
    if kind == "xz":
        import lzma

        return Inflated(raw, lambda: lzma.LZMADecompressor(memlimit=MEMORY), lzma.LZMAError)
    return _zstd(raw)


def _zstd(raw: BinaryIO) -> Stream:
    try:
        zstd = import_module("compression.zstd")
    except ImportError:
        return _ZstandardPackage(raw)
    options = {zstd.DecompressionParameter.window_log_max: MEMORY.bit_length() - 1}
    return Inflated(raw, lambda: zstd.ZstdDecompressor(options=options), zstd.ZstdError)
