"""Archives and compressed files written anew, in the form they had."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import tarfile
import zipfile
from collections.abc import Iterable
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

Packed = tuple[str, Path, int]
"""Name in the archive, where the bytes are, time."""


def compress(source: Path, target: BinaryIO, kind: str) -> None:
    """One file in one of the kinds that `evidence/compressed.py` reads; no name and no time goes into the header."""
    with source.open("rb") as stream, _compressor(target, kind) as out:
        shutil.copyfileobj(stream, out, 1 << 18)


def _compressor(target: BinaryIO, kind: str) -> Any:
    if kind == "gz":
        return gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0)
    if kind == "bz2":
        return bz2.BZ2File(target, "wb")
    if kind == "xz":
        return lzma.LZMAFile(target, "wb", preset=1)
    try:
        return import_module("compression.zstd").ZstdFile(target, "wb")
    except ImportError:
        import zstandard

        return zstandard.ZstdCompressor().stream_writer(target, closefd=False)


def tar(members: Iterable[Packed], target: BinaryIO) -> None:
    """Plain files, owned by nobody."""
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name, path, mtime_ns in members:
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = path.stat().st_size, 0o600, mtime_ns // 1_000_000_000
            with path.open("rb") as stream:
                archive.addfile(info, stream)


def zip_(members: Iterable[Packed], target: BinaryIO) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path, mtime_ns in members:
            moment = datetime.fromtimestamp(max(mtime_ns // 1_000_000_000, 315_619_200), timezone.utc).astimezone()
            info = zipfile.ZipInfo(name, moment.timetuple()[:6])
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o100600 << 16
            with path.open("rb") as stream, archive.open(info, "w") as out:
                shutil.copyfileobj(stream, out, 1 << 18)
