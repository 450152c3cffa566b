"""A folder or an archive as a tree of files: links refused, archives opened, each file with its kind."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct, field

from whichrank.evidence.archives import Unpacker
from whichrank.evidence.intake import SKIPPED_FOLDERS
from whichrank.evidence.packed import Limits
from whichrank.evidence.scrubbing.kinds import ARCHIVES, COMPRESSED, keeps_secrets, kind_of

NESTING = 3
"""Archives within archives."""
_HEAD = 4096


class File(Struct):
    """One file; an archive or a compressed file holds others."""

    name: str
    """Path relative to the folder or the archive that it is in."""
    path: Path
    """Where its bytes are."""
    mtime_ns: int = 0
    kind: str = "text"
    left_out: str = ""
    """Why it does not come into the copy."""
    members: list[File] = field(default_factory=list)
    inner: str = ""
    """What a compressed file holds: "tar", or one file."""

    def leaves(self) -> Iterator[File]:
        """All files in it that are no archives."""
        if self.left_out:
            return
        if self.kind in ARCHIVES or self.kind in COMPRESSED:
            for member in self.members:
                yield from member.leaves()
        else:
            yield self


class Survey:
    """Builds the tree; archives are unpacked into `room` under one account of bytes and members."""

    def __init__(self, room: Path, limits: Limits) -> None:
        self._limits = limits
        self._unpacker = Unpacker(room, limits)

    def look(self, given: Path) -> list[File]:
        """The files of a folder; the members of an archive; a single file."""
        if given.is_dir():
            return list(self._folder(given))
        only = self._file(given.name, given, given.stat().st_mtime_ns, 0)
        archive = only.kind in ARCHIVES or only.inner == "tar"
        return only.members if archive and not only.left_out else [only]

    def _folder(self, root: Path) -> Iterator[File]:
        waiting = [root]
        count = 0
        while waiting:
            folder = waiting.pop()
            name = folder.relative_to(root).as_posix()
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                yield File(name, folder, left_out=f"can't be listed: {error.strerror}")
                continue
            for entry in entries:
                path = folder / entry.name
                relative = path.relative_to(root)
                count += 1
                if count > self._limits.files:
                    yield File(
                        relative.as_posix(),
                        path,
                        left_out=f"this and what follows: more than {self._limits.files:,} files",
                    )
                    return
                if entry.is_symlink():
                    yield File(relative.as_posix(), path, left_out="a link")
                elif entry.is_dir(follow_symlinks=False):
                    if entry.name in SKIPPED_FOLDERS:
                        yield File(relative.as_posix(), path, left_out="a folder of programs, not evidence")
                    elif len(relative.parts) >= self._limits.depth:
                        yield File(relative.as_posix(), path, left_out=f"more than {self._limits.depth} folders deep")
                    else:
                        waiting.append(path)
                else:
                    yield self._plain(relative.as_posix(), path)

    def _plain(self, name: str, path: Path) -> File:
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                return File(name, path, left_out="not a plain file")
            return self._file(name, path, status.st_mtime_ns, 0)
        except OSError as error:
            return File(name, path, left_out=f"can't be read: {error.strerror}")

    def _file(self, name: str, path: Path, mtime_ns: int, nested: int) -> File:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
        base = PurePosixPath(name).name
        kind, why = kind_of(head, base)
        file = File(name, path, mtime_ns, kind, why if kind != "binary" else why or "an unknown binary format")
        if keeps_secrets(base):
            file.left_out = "a file that exists to hold secrets"
        elif not file.left_out and (kind in ARCHIVES or kind in COMPRESSED):
            self._open(file, nested)
        return file

    def _open(self, file: File, nested: int) -> None:
        if nested >= NESTING:
            file.left_out = f"more than {NESTING} archives inside one another"
            return
        before = len(self._unpacker.refused)
        # A label of its own: names of members come back behind it.
        for item in self._unpacker.unpack(file.path, "*"):
            name = item.label.removeprefix("*").removeprefix("/")
            file.inner = "tar" if name and file.kind in COMPRESSED else file.inner
            member = self._file(name or _stem(file.name), item.path, item.mtime_ns, nested + 1)
            file.members.append(member)
        for refused in self._unpacker.refused[before:]:
            name = refused.path.removeprefix("*").removeprefix("/")
            if refused.quality == "partial" and not name:
                continue  # cut off: what came out of it is kept
            if name:
                file.members.append(File(name, file.path, left_out=refused.note))
            elif not file.members:
                file.left_out = refused.note
        if not file.members and not file.left_out:
            file.left_out = "an empty archive"


def _stem(name: str) -> str:
    """`a/rank_0.log.gz` -> `rank_0.log`."""
    base = PurePosixPath(name)
    return base.stem if base.suffix else base.name
