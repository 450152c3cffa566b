"""Archives taken apart safely: tar and zip, also compressed, and single compressed files.

Members are spent under numbers into a private folder, so no name in an archive can reach another
place; links, devices and names that try to are refused all the same, and said so. The amount spent,
the number of members and the compression ratio are bounded.
"""

from __future__ import annotations

import stat
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, Protocol

from msgspec import Struct, field

from whichrank.evidence.compressed import CHUNK, Stream, inflate
from whichrank.evidence.packed import MIB, Limits, compression, is_tar, printable
from whichrank.model.contracts import Item
from whichrank.model.errors import UnreadableError
from whichrank.model.evidence import Quality, Source

if TYPE_CHECKING:
    import tarfile
    import zipfile

TOO_LARGE = "it grows too large when unpacked, as a bomb would"


class Readable(Protocol):
    """Anything that gives bytes, and none at the end."""

    def read(self, size: int, /) -> bytes: ...


class _LimitError(Exception):
    """A limit was reached: leave this archive, keep what came out of it."""


class Unpacker(Struct):
    """Takes archives apart into `folder`, with one account of bytes and members for all of them."""

    folder: Path
    limits: Limits
    refused: list[Source] = field(default_factory=list)
    spent: int = 0
    """Bytes written, and bytes read past in members that were refused."""
    members: int = 0
    files: int = 0

    def unpack(self, path: Path, label: str) -> Iterator[Item]:
        """The members of an archive, each spent out before it is given; what goes wrong is noted."""
        start = self.spent
        try:
            yield from self._members(path, label)
        except _LimitError as stop:
            self._note(label, f"unpacked in part: {stop}", self._grade(start))
        except UnreadableError as error:
            self._note(label, error.message, "unusable")
        except (*_tar_errors(), *_zip_errors()) as error:
            self._note(label, f"could not be unpacked ({shortest(error)})", self._grade(start))
        except Exception as error:  # noqa: BLE001 - whatever an archive provokes costs that archive alone
            self._note(label, f"could not be unpacked ({type(error).__name__})", self._grade(start))

    def _members(self, path: Path, label: str) -> Iterator[Item]:
        allowed = max(self.limits.ratio_from, path.stat().st_size * self.limits.ratio)
        ceiling = min(self.limits.unpacked, self.spent + allowed)
        with path.open("rb") as raw:
            head = raw.read(512)
            raw.seek(0)
            if head.startswith(b"PK"):
                yield from self._zip(raw, label, ceiling)
            elif is_tar(head, label):
                yield from self._tar(raw, label, ceiling)
            else:
                yield from self._compressed(inflate(raw, compression(head)), path, label, ceiling)

    def _compressed(self, stream: Stream, path: Path, label: str, ceiling: int) -> Iterator[Item]:
        begin = b""
        while len(begin) < 512 and (piece := stream.read(CHUNK)):
            begin += piece
        joined = _Rejoined(begin, stream)
        if is_tar(begin[:512], ""):
            yield from self._tar(joined, label, ceiling)
        else:
            yield self._write(joined, label, path.stat().st_mtime_ns, ceiling)
        if stream.cut:
            self._note(label, stream.cut, "partial")

    def _tar(self, stream: Readable, label: str, ceiling: int) -> Iterator[Item]:
        import tarfile

        guarded = _Guarded(stream)
        # "r|" reads forward only: nothing in the archive can send it back to read a part twice.
        with tarfile.open(fileobj=guarded, mode="r|") as archive:
            unread = 0
            while True:
                # A header (long names, pax records) is held in memory: it must stay small.
                guarded.allowance = unread + MIB
                member = archive.next()
                if member is None:
                    return
                # The list of members that tarfile keeps would grow without end.
                vars(archive)["members"].clear()
                if member.size < 0:
                    raise _LimitError("a member of negative size")
                guarded.allowance = unread = member.size + MIB
                if self.spent + member.size > ceiling:
                    raise _LimitError(TOO_LARGE)
                if member.isdir() or not self._acceptable(label, member.name, _tar_trouble(member)):
                    self.spent += member.size
                    continue
                content = archive.extractfile(member)
                if content is not None:
                    name = joined_label(label, member.name)
                    yield self._write(content, name, nanoseconds(member.mtime), ceiling)
                    unread = 0

    def _zip(self, raw: BinaryIO, label: str, ceiling: int) -> Iterator[Item]:
        size, entries = directory_size(raw)
        if size > self.limits.directory or entries > self.limits.files:
            raise _LimitError("its table of contents is too large")
        import zipfile

        with zipfile.ZipFile(raw) as archive:
            infos = archive.infolist()
            if any(PurePosixPath(info.filename).name == "data.pkl" for info in infos):
                self._note(label, "a PyTorch checkpoint, not evidence", "ignored")
                return
            for info in infos:
                if not info.filename:
                    self._note(label, "a member without a name was left out", "partial")
                    continue
                if info.is_dir() or not self._acceptable(label, info.filename, _zip_trouble(info)):
                    continue
                with archive.open(info) as content:
                    taken = nanoseconds(time.mktime((*info.date_time, 0, 0, -1)))
                    yield self._write(content, joined_label(label, info.filename), taken, ceiling)

    def _acceptable(self, label: str, name: str, trouble: str) -> bool:
        self.members += 1
        if self.members > self.limits.files:
            raise _LimitError(f"more than {self.limits.files:,} members")
        parts = PurePosixPath(name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or name[1:2] == ":":
            trouble = "refused: its name points outside the archive"
        if trouble:
            self._note(joined_label(label, name), trouble, "ignored")
        return not trouble

    def _write(self, content: Readable, label: str, mtime_ns: int, ceiling: int) -> Item:
        self.files += 1
        target = self.folder / f"{self.files:06d}"
        size = 0
        try:
            with target.open("xb") as out:
                while piece := content.read(CHUNK):
                    self.spent += len(piece)
                    if self.spent > ceiling:
                        raise _LimitError(TOO_LARGE)
                    size += out.write(piece)
        except _LimitError:
            target.unlink()
            raise
        except _tar_errors() as error:
            if not size:
                raise
            self._note(label, f"cut off after {size:,} bytes ({shortest(error)})", "partial")
        return Item(target, label, size, mtime_ns)

    def _grade(self, start: int) -> Quality:
        return "partial" if self.spent > start else "unusable"

    def _note(self, label: str, note: str, quality: Quality) -> None:
        self.refused.append(Source(label, "", quality, note))


class _Rejoined(Stream):
    """A stream whose beginning was already read."""

    def __init__(self, begin: bytes, rest: Stream) -> None:
        super().__init__()
        self._begin, self._rest = begin, rest

    def read(self, size: int = -1, /) -> bytes:
        if self._begin:
            size = len(self._begin) if size < 0 else size
            piece, self._begin = self._begin[:size], self._begin[size:]
            return piece
        return self._rest.read(size) or b""


class _Guarded(Stream):
    """A stream that gives no more than its allowance between two members."""

    def __init__(self, inner: Readable) -> None:
        super().__init__()
        self._inner = inner
        self.allowance = MIB

    def read(self, size: int = -1, /) -> bytes:
        piece = self._inner.read(size)
        self.allowance -= len(piece)
        if self.allowance < 0:
            raise _LimitError("a header of unreasonable size")
        return piece


def joined_label(label: str, name: str) -> str:
    """`bundle.tar.gz/node1/fr_0`."""
    parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part != "."]
    return printable("/".join([label, *parts]))


def nanoseconds(seconds: float) -> int:
    """A member's time; 0 for what no clock shows (pax headers may say "inf")."""
    return int(seconds * 1e9) if 0 <= seconds < 1 << 33 else 0


def shortest(error: BaseException) -> str:
    return str(error)[:120] or type(error).__name__


def directory_size(raw: BinaryIO) -> tuple[int, int]:
    """The largest size, and the most entries, that a zip file may declare for its table of contents.

    zipfile reads the table whole. A comment can hold further records: which one zipfile will find does not matter."""
    raw.seek(0, 2)
    raw.seek(max(0, raw.tell() - 66_000))  # the end record, a comment of 64 KiB, the zip64 records
    tail = raw.read()
    raw.seek(0)
    found = [(0, 0)]
    for mark, layout, at in ((b"PK\x05\x06", "<HI", 10), (b"PK\x06\x06", "<QQ", 32)):
        begin = tail.find(mark)
        while begin >= 0:
            if begin + at + struct.calcsize(layout) <= len(tail):
                entries, size = struct.unpack_from(layout, tail, begin + at)
                found.append((0 if size == 0xFFFFFFFF else size, 0 if entries == 0xFFFF else entries))
            begin = tail.find(mark, begin + 4)
    return max(size for size, _ in found), max(entries for _, entries in found)


def _tar_errors() -> tuple[type[Exception], ...]:
    import tarfile

    return (tarfile.TarError, OSError, EOFError, ValueError, OverflowError, RecursionError, zlib.error)


def _zip_errors() -> tuple[type[Exception], ...]:
    import zipfile

    return (zipfile.BadZipFile, RuntimeError, NotImplementedError, struct.error)


def _tar_trouble(member: tarfile.TarInfo) -> str:
    kinds: tuple[tuple[Callable[[], bool], str], ...] = (
        (member.issym, "refused: a link"),
        (member.islnk, "refused: a link"),
        (member.issparse, "refused: a sparse file"),
    )
    for test, trouble in kinds:
        if test():
            return trouble
    return "" if member.isreg() else "refused: not a plain file"


def _zip_trouble(info: zipfile.ZipInfo) -> str:
    mode = info.external_attr >> 16
    if stat.S_ISLNK(mode):
        return "refused: a link"
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        return "refused: not a plain file"
    return "encrypted" if info.flag_bits & 1 else ""
