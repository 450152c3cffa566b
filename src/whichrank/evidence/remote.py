"""Evidence in an object store or on another file system that fsspec knows (s3://, gs://, hdfs://…): fetched here first.

Nothing that a store says is trusted: the number of files and their size are bounded, and names can't lead out of the
folder that they are put into.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from whichrank.model.errors import UsageError
from whichrank.model.files import private_folder

URL = re.compile(r"[a-z][a-z0-9+.-]{1,20}(::[a-z][a-z0-9+.-]{1,20})?://", re.ASCII)
MOST_FILES = 500_000
AT_ONCE = 256
"""Files that are asked for together: stores with latency answer them side by side."""
_COMMON = frozenset(
    ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "http", "https", "ftp", "sftp", "ssh", "smb", "hdfs",
     "webhdfs", "hf", "oss", "oci", "github", "gdrive", "memory", "file")
)  # fmt: skip
"""Protocols of fsspec that are in use, for where it is not installed."""
_INSTALL = "pip install 'whichrank[remote]' and the package of the store (s3fs, gcsfs, adlfs)."

Progress = Callable[[str, int, int], None]


def is_url(text: str) -> bool:
    """Whether fsspec is meant; `C:\\` and plain paths are not."""
    return URL.match(text) is not None


def fetch(url: str, folder: Path, progress: Progress | None = None) -> Path:
    """Everything below the address as files in a folder; returns that folder."""
    system, root = _opened(url)
    try:
        found = {name: about for name, about in system.find(root, detail=True).items() if about.get("type") == "file"}
    except Exception as error:  # each store has errors of its own
        raise UsageError(f"can't list {url}: {_said(error)}", "Is the address right, and may you read it?") from error
    if not found:
        raise UsageError(f"there is nothing at {url}", "Give a file, or the beginning of the names of many.")
    if len(found) > MOST_FILES:
        raise UsageError(f"there are {len(found):,} files at {url}", "Give a folder of one job.")
    size = sum(int(about.get("size") or 0) for about in found.values())
    room = shutil.disk_usage(private_folder(folder)).free
    if size > room // 2:
        raise UsageError(
            f"{url} holds {size >> 30} GiB and {room >> 30} GiB are free in {folder}",
            "Reduce it where it lies (whichrank reduce), or set TMPDIR.",
        )
    names = sorted(found)
    for at in range(0, len(names), AT_ONCE):
        part = names[at : at + AT_ONCE]
        targets = [_target(folder, root, name) for name in part]
        for target in targets:
            target.parent.mkdir(parents=True, exist_ok=True)
        try:
            system.get(part, [str(target) for target in targets])
        except Exception as error:
            raise UsageError(f"can't read {url}: {_said(error)}", "May you read it?") from error
        if progress is not None:
            progress("fetching", at + len(part), len(names))
    return folder


def _opened(url: str) -> tuple[Any, str]:
    scheme = url.partition("://")[0].split("::")[0].lower()
    if scheme not in _protocols():
        raise UsageError(f"unknown protocol '{scheme}': {url}", "Give a path, or an address such as s3://BUCKET/PATH.")
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise UsageError(f"{url} needs fsspec", _INSTALL) from error
    try:
        system, root = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(f"can't open {url}: {_said(error)}", _INSTALL) from error
    return system, str(root)


def _protocols() -> frozenset[str]:
    """What fsspec can open, with the package of the store where one is needed."""
    try:
        from fsspec import available_protocols
    except ImportError:
        return _COMMON
    return frozenset(available_protocols())


def _target(folder: Path, root: str, name: str) -> Path:
    """Where a file goes: below the folder, whatever it is called."""
    inside = PurePosixPath(name)
    if inside.is_relative_to(root) and str(inside) != str(PurePosixPath(root)):
        inside = inside.relative_to(root)
    else:
        inside = PurePosixPath(inside.name)
    parts = [re.sub(r"[^\w.@=+,: -]", "_", part)[:200] for part in inside.parts if part not in ("", ".", "..", "/")]
    return folder.joinpath(*(parts or ["file"]))


def _said(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:300]
