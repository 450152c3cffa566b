"""Where a job's own output and torch's own dumps are to be found, by its settings and its streams."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

OUTPUT_LIMIT = 16 << 20


@dataclass(frozen=True, slots=True)
class Torch:
    """Prefixes of files; empty where nothing is set."""

    dump: str = ""
    pipe: str = ""

    def dump_of(self, rank: int) -> Path | None:
        return Path(f"{self.dump}{rank}") if self.dump else None

    def pipe_of(self, rank: int) -> Path | None:
        return Path(f"{self.pipe}{rank}.pipe") if self.pipe else None


def torch_places(environ: Mapping[str, str]) -> Torch:
    """What torch reads: the new name of the dump's prefix before the old one."""
    dump = environ.get("TORCH_FR_DUMP_TEMP_FILE") or environ.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE") or ""
    return Torch(dump, environ.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", ""))


@dataclass(slots=True)
class Output:
    """The streams that the job shares with us, where they go to files: what was written since the start."""

    starts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Name -> descriptor and size at the start."""
    files: dict[str, tuple[Path, int]] = field(default_factory=dict)
    """The same for files that others write the job's output to."""
    copies: dict[str, Path] = field(default_factory=dict)
    """Name -> the copy of a stream that goes to a terminal or a pipe."""

    @classmethod
    def of_this_process(cls, copies: Mapping[str, Path] | None = None) -> Output:
        found, known = cls(copies=dict(copies or {})), set()
        for name, descriptor in (("stdout", 1), ("stderr", 2)):
            try:
                status = os.fstat(descriptor)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) not in known:
                known.add((status.st_dev, status.st_ino))
                found.starts[name] = (descriptor, status.st_size)
        return found

    def also(self, name: str, path: Path) -> None:
        """One more file, from its present end on."""
        with suppress(OSError):
            self.files[name] = (path, path.stat().st_size)

    def read(self) -> dict[str, bytes]:
        """Name -> the newest of what was written, without a change to the stream's position."""
        found = {}
        places = {name: (Path(f"/proc/self/fd/{fd}"), start) for name, (fd, start) in self.starts.items()}
        for name, (path, start) in (places | self.files).items():
            try:
                with path.open("rb") as stream:
                    size = os.fstat(stream.fileno()).st_size
                    stream.seek(max(start, size - OUTPUT_LIMIT))
                    found[name] = stream.read(OUTPUT_LIMIT)
            except OSError:
                continue
        for name, path in self.copies.items():
            parts = []
            for part in (path.with_name(f"{path.name}.older"), path):
                with suppress(OSError):
                    parts.append(part.read_bytes())
            if any(parts):
                found[name] = b"".join(parts)
        return found
