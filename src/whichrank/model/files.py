"""Files written where others may write too: whole or not at all, never through somebody else's link."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from whichrank.model.errors import UsageError


def replace_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write a file in one step: a draft with a name that nobody can guess, then a rename over the old one.

    Without `mode` the file keeps the mode that it had, or gets the usual one of this process."""
    import tempfile

    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")  # O_EXCL, O_NOFOLLOW, 0600
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(draft).chmod(_usual_mode(path) if mode is None else mode)
        os.replace(draft, path)  # noqa: PTH105 - the same words as in mkstemp's documentation
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def replace_text(path: Path, text: str, *, mode: int | None = None) -> None:
    replace_file(path, text.encode("utf-8", "backslashreplace"), mode=mode)


def private_folder(path: Path) -> Path:
    """Make a folder for this user alone, or take one that is: a link, or another owner's folder, is refused."""
    try:
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise UsageError(f"{path} is not a folder", "Give another place.") from None
        if status.st_uid != os.getuid():
            raise UsageError(f"{path} belongs to another user", "Give a folder of your own.") from None
    return path


def _usual_mode(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
