"""Bundles: evidence in one folder, with a manifest that says what is there and what could not be had."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import socket
import time
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from whichrank import __version__
from whichrank.evidence.collectors import processes
from whichrank.model.errors import UsageError
from whichrank.model.files import private_folder, replace_file
from whichrank.model.manifest import NAME, SCHEMA_VERSION, BundleFile, Manifest, Missing
from whichrank.model.moments import rfc3339, rfc3339_ns


def now() -> str:
    """This moment, as the contract writes times."""
    return rfc3339(datetime.now(timezone.utc))


class Bundle:
    """A bundle that is being gathered. A file that can't be written is noted and stops nothing."""

    def __init__(self, folder: Path, host: str = "") -> None:
        self.folder = folder
        self.host = host or socket.gethostname()
        self._prepare()
        self.manifest = Manifest(created=now(), tool={"name": "whichrank", "version": __version__})
        self.manifest.hosts.append(
            {"name": self.host, "boot_id": processes.boot_id(), "clock_offset_s": 0.0, "offset_error_s": 0.0}
        )
        self.manifest.redaction = "environment by allow-list, values that look like secrets removed"

    def add(
        self, path: str, data: bytes, kind: str, *, rank: int | None = None, pid: int | None = None, note: str = "",
        taken_ns: int | None = None,
    ) -> bool:  # fmt: skip
        """Write one file, once; an empty one is told as missing. `taken_ns`: it was taken earlier than now."""
        if not data:
            self.lacks(kind, note or "it is empty", rank)
            return False
        try:
            self._put(path, data, taken_ns)
        except (OSError, UsageError) as error:
            self.lacks(kind, f"can't be written: {getattr(error, 'strerror', None) or error}", rank)
            return False
        digest = hashlib.sha256(data).hexdigest()
        # A later look at the same thing takes the place of the earlier one.
        self.manifest.files = [file for file in self.manifest.files if file.path != path]
        self.manifest.missing = [gap for gap in self.manifest.missing if (gap.what, gap.rank) != (kind, rank)]
        taken_at = (rfc3339_ns(taken_ns) if taken_ns is not None else None) or now()
        self.manifest.files.append(BundleFile(path, kind, digest, self.host, rank, pid, taken_at, note))
        return True

    def lacks(self, what: str, why: str, rank: int | None = None) -> None:
        """Say what could not be had; once."""
        entry = Missing(what, why, self.host, rank)
        if entry not in self.manifest.missing:
            self.manifest.missing.append(entry)

    def close(self, job: dict[str, Any] | None = None) -> Path:
        """Write the manifest."""
        self.manifest.job.update(job or {})
        document = {"schema_version": SCHEMA_VERSION, **asdict(self.manifest)}
        self._put(NAME, (json.dumps(document, indent=2) + "\n").encode("utf-8", "backslashreplace"), None)
        return self.folder / NAME

    def _prepare(self) -> None:
        private_folder(self.folder)

    def _put(self, path: str, data: bytes, taken_ns: int | None) -> None:
        target = self.folder / path
        private_folder(target.parent)
        replace_file(target, data, mode=0o600)
        if taken_ns is not None:
            os.utime(target, ns=(taken_ns, taken_ns))


class MemoryBundle(Bundle):
    """A bundle without a disk: its files are in `content`, by path, with their times."""

    def __init__(self, host: str = "", most: int = 1 << 30) -> None:
        self.content: dict[str, tuple[bytes, int]] = {}
        self.left = most
        super().__init__(Path("/nonexistent"), host)

    def _prepare(self) -> None:
        """There is no folder."""

    def _put(self, path: str, data: bytes, taken_ns: int | None) -> None:
        self.left += len(self.content.get(path, (b"", 0))[0]) - len(data)
        if self.left < 0 and path != NAME:
            self.left += len(data)
            raise OSError(errno.EFBIG, f"{len(data) >> 20} MiB are more than may be sent")
        self.content[path] = (data, time.time_ns() if taken_ns is None else taken_ns)


def load(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle as plain values; empty where there is none that can be read."""
    try:
        content = json.loads((folder / NAME).read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
