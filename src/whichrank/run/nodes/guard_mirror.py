"""Records of guards on their way to the leader, while the job runs: files that only grow, copied piece by piece.

A node sends what was appended to the records of its ranks; whoever leads appends it to copies of its own, and compares
the ranks of all nodes as if they had written here. A node that passes on words of others passes on their records too.
After a broken connection everything is sent again: what the leader has already is skipped.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from whichrank.model.files import private_folder
from whichrank.run.watch.capture.guards import SUFFIX

FOLDER = "guards"
AT_ONCE = 64 << 10
"""Bytes of one piece."""
PER_TURN = 2 << 20
"""Bytes that a node sends at one beat; a rank writes a few hundred in a second."""
MOST_FILES = 4096
MOST_BYTES = 32 << 20
"""Of one copy: a guard begins a new file before."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}\.guard\Z")


class GuardPiece(msgspec.Struct, frozen=True):
    """Bytes of one file, from an offset on."""

    name: Annotated[str, msgspec.Meta(max_length=240)]
    offset: Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)]
    data: Annotated[bytes, msgspec.Meta(max_length=AT_ONCE)]


@dataclass(slots=True)
class Outgoing:
    """What is to be sent of the records below these folders: (prefix of the copies, folder)."""

    places: list[tuple[str, Path]] = field(default_factory=list)
    passed_on: Path | None = None
    """Copies of nodes below this one; their names stay as they are."""
    _sent: dict[str, int] = field(default_factory=dict)

    def again(self) -> None:
        """Another leader, or the same one after a break."""
        self._sent.clear()

    def pieces(self, most: int = PER_TURN) -> Iterator[GuardPiece]:
        """What was appended since, whole lines or not, up to `most` bytes."""
        below = [("", self.passed_on)] if self.passed_on is not None and self.places else []
        for prefix, folder in [*self.places, *below]:
            for path in sorted(folder.glob(f"*{SUFFIX}"))[:MOST_FILES]:
                with contextlib.suppress(OSError):
                    for piece in self._of_file(prefix, path, most):
                        most -= len(piece.data)
                        yield piece
                if most <= 0:
                    return

    def _of_file(self, prefix: str, path: Path, most: int) -> Iterator[GuardPiece]:
        with path.open("rb") as stream:
            # A guard whose file is full begins a new one of the same name: that is another file here.
            name = f"{prefix}.{os.fstat(stream.fileno()).st_ino:x}.{path.name}" if prefix else path.name
            offset = self._sent.get(name, 0)
            stream.seek(offset)
            while most > 0 and offset < MOST_BYTES and (data := stream.read(min(AT_ONCE, most, MOST_BYTES - offset))):
                yield GuardPiece(name, offset, data)
                offset += len(data)
                most -= len(data)
                self._sent[name] = offset


def prefix_of(launch: int) -> str:
    """What the names of all copies of one launch of the job begin with."""
    return f"launch{launch}."


def copies(folders: Iterable[Path], launch: int) -> list[Path]:
    """What has been kept of this launch."""
    return sorted(path for folder in folders for path in folder.glob(f"{prefix_of(launch)}*{SUFFIX}"))


def keep(folder: Path, piece: GuardPiece) -> None:
    """Append to the copy; what is there already, and what would leave a gap, is left out."""
    if not _NAME.match(piece.name) or ".." in piece.name:
        return
    with contextlib.suppress(OSError):
        private_folder(folder)
        if not (folder / piece.name).exists() and sum(1 for _ in folder.iterdir()) >= MOST_FILES:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(folder / piece.name, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if piece.offset <= size < piece.offset + len(piece.data):
                os.write(descriptor, piece.data[size - piece.offset :])
        finally:
            os.close(descriptor)
