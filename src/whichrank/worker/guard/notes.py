"""The file that a rank's guard writes: one JSON text per line, the newest few megabytes of them."""

from __future__ import annotations

import json
import os
from typing import Any

MOST_BYTES = 24 << 20
SUFFIX = ".guard"
_LASTING = ("start", "gpu", "group", "sig", "layout", "off")
_LATEST = ("full", "save", "load", "sampler", "scheduler", "replay")


class Notes:
    """Appends records; when the file is full it begins anew with what explains the rest."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = 0
        self._lasting: list[str] = []
        self._open()

    def _open(self) -> None:
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, records: list[dict[str, Any]]) -> None:
        lines = []
        for record in records:
            line = json.dumps(record, separators=(",", ":"))
            kind = record["t"]
            if kind in _LASTING or (kind in _LATEST and len(self._lasting) < 4096):
                self._lasting.append(line)
            lines.append(line)
        if lines:
            self._append(lines)
        if self.size > MOST_BYTES:
            self._renew()

    def _append(self, lines: list[str]) -> None:
        data = ("\n".join(lines) + "\n").encode("utf-8", "replace")
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
        self.size += len(data)

    def _renew(self) -> None:
        os.close(self._descriptor)
        os.replace(self.path, f"{self.path}.older")  # noqa: PTH105
        self._open()
        self.size = 0
        self._append(self._lasting)
