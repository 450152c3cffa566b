"""Flight-recorder dumps of a folder, laid out as the peers want them: one file per rank, and nothing else beside."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from whichrank.evidence.readers import flight_recorder
from whichrank.evidence.readers.flight_recorder.names import rank_from_name

LIMIT_S = 120.0
PICKLED = b"\x80"


@contextmanager
def laid_out(folder: Path, prefix: str) -> Iterator[Path | None]:
    """A folder with `<prefix><rank>` for every rank that left a dump; None where there is none."""
    found: dict[int, Path] = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if not path.is_file() or path.is_symlink():
            continue
        with path.open("rb") as stream:
            head = stream.read(4096)
        rank = rank_from_name(path.name)
        if rank is not None and head.startswith(PICKLED) and flight_recorder.sniff(head, path.name):
            found[rank] = path
    with tempfile.TemporaryDirectory(prefix="whichrank-peer-") as name:
        for rank, path in found.items():
            shutil.copy(path, Path(name) / f"{prefix}{rank}")
        yield Path(name) if found else None


@dataclass(slots=True)
class Warm:
    """A peer in a Python of its own that stays: only the first question waits for its imports."""

    module: str
    imports: tuple[str, ...]
    """What takes long to import."""
    path: str = ""
    """A folder to import from besides."""
    _child: subprocess.Popen[bytes] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, *arguments: str) -> tuple[int, str]:
        """Its exit code and all that it prints."""
        with self._lock:
            child = self._child = self._child if self._child and self._child.poll() is None else self._begin()
            if child.stdin is None or child.stdout is None:
                return 1, "it could not be started"
            timer = threading.Timer(LIMIT_S, child.kill)
            timer.start()
            try:
                child.stdin.write(json.dumps([self.module, *arguments]).encode() + b"\n")
                child.stdin.flush()
                answer = child.stdout.readline()
                code, text = json.loads(answer) if answer else (1, "it did not end in time")
                return int(code), str(text)
            except (OSError, ValueError):
                return 1, "it did not end in time"
            finally:
                timer.cancel()

    def _begin(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(part for part in (self.path, os.environ.get("PYTHONPATH", "")) if part)
        child = subprocess.Popen(  # noqa: S603 - another tool, on evidence that we made
            [sys.executable, str(Path(__file__).with_name("_warm.py")), *self.imports],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "COLUMNS": "400", **({"PYTHONPATH": path} if path else {})},
        )  # fmt: skip
        atexit.register(child.kill)
        return child


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
