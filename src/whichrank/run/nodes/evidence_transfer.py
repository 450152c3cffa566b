"""The evidence of one node on its way to the leader: a small archive, opened there with the care that strangers get."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import IO

from whichrank.evidence.archives import Unpacker
from whichrank.evidence.packed import Limits
from whichrank.model.files import private_folder

MOST = 256 << 20
"""Bytes of an upload, packed."""
_UNPACKED = 4 << 30
_IN_MEMORY = 32 << 20
"""Small ones need no disk: that of a node may be full."""
_LABEL = "upload"


def pack(folder: Path, most: int = MOST) -> tuple[IO[bytes], str]:
    """A bundle as an archive, rewound; and what is not in it."""
    box: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - who sends it closes it
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    left: list[str] = []
    with tarfile.open(fileobj=box, mode="w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as archive:
        # Small files first: words and stacks say more for their size than anything else.
        for path in sorted(files, key=lambda path: path.stat().st_size):
            name = path.relative_to(folder).as_posix()
            # A file that does not shrink at all must fit.
            if box.tell() + path.stat().st_size > most:
                left.append(name)
                continue
            archive.add(path, name, recursive=False)
    box.seek(0)
    return box, f"too large to send: {', '.join(left[:8])}" if left else ""


def unpack(archive: Path, target: Path) -> list[str]:
    """Take an upload apart into a folder, in place of what was there; returns what was refused."""
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=_made(target.parent)))
    try:
        numbered = _made(draft / "numbered")
        room = min(_UNPACKED, shutil.disk_usage(draft).free // 2)
        unpacker = Unpacker(numbered, Limits(files=100_000, unpacked=room))
        for item in unpacker.unpack(archive, _LABEL):
            place = draft / "whole" / item.label.removeprefix(f"{_LABEL}/")
            _made(place.parent)
            item.path.rename(place)
            os.utime(place, ns=(item.mtime_ns, item.mtime_ns))
        shutil.rmtree(target, ignore_errors=True)
        _made(draft / "whole").rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return [f"{source.path.removeprefix(f'{_LABEL}/')}: {source.note}" for source in unpacker.refused]


def _made(folder: Path) -> Path:
    return private_folder(folder)
