"""Flight-recorder dumps of a folder, laid out as the peers want them: one file per rank, and nothing else beside."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


def run(arguments: Sequence[str], **variables: str) -> tuple[int, str]:
    """A peer in a Python of its own: its code and all that it prints."""
    try:
        done = subprocess.run(  # noqa: S603 - another tool, on evidence that we made
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            check=False,
            env={**os.environ, "COLUMNS": "400", **variables},
        )
    except subprocess.TimeoutExpired:
        return 1, "it did not end in time"
    return done.returncode, done.stdout.decode("utf-8", "replace")


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
