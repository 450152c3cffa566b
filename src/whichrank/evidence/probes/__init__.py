"""Active measurements and checks of a host: one file per probe, found by its folder.

A probe is a module with `NAME`, `LIMIT_S` and `measure(place)`, which returns plain JSON or raises `Missing` with the
reason why there is nothing. `LOADS = True` marks a probe that would disturb a running job. Each runs in a child that
can be abandoned: on a wedged driver nothing ends it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Protocol

from msgspec import Struct, field

from whichrank.evidence.collectors.tools import ask
from whichrank.model.preflight import Launch

_MOST = 1 << 20


class Missing(Exception):  # noqa: N818 - not an error of the program
    """Why a probe has nothing to say."""


class Absent(Missing):
    """The host does not have what the probe looks at: there is nothing to check."""


class Place(Struct, frozen=True):
    """Where to look: this machine, or a recorded tree of another (`proc/`, `sys/`, `commands/` below `root`)."""

    root: Path = Path("/")
    launch: Launch = field(default_factory=Launch)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def live(self) -> bool:
        return self.root == Path("/")

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def read(self, name: str) -> str | None:
        """The beginning of a file of /proc or /sys; None where it is not there or may not be read."""
        return content(self.path(name))

    def entries(self, name: str) -> list[Path]:
        """What a folder holds, sorted; nothing where there is no such folder."""
        try:
            return sorted(self.path(name).iterdir())
        except OSError:
            return []

    def output(self, command: list[str], limit_s: float) -> tuple[bytes, str]:
        """What a program prints, and why there is nothing; of a recorded tree what it printed then."""
        if not self.live:
            name = " ".join(command).replace("/", "_").replace(" ", "_")
            try:
                return self.path(f"commands/{name}").read_bytes()[:_MOST], ""
            except OSError:
                return b"", f"{' '.join(command)} was not recorded"
        program = shutil.which(command[0])
        if program is None:
            return b"", f"{command[0]} is not installed"
        said, why = ask([program, *command[1:]], limit_s)
        return said, f"{command[0]}: {why}" if why else ""


class Probe(Protocol):
    """The contract of a file in this folder."""

    NAME: str
    LIMIT_S: float

    def measure(self, place: Place) -> dict[str, Any]: ...


def content(file: Path) -> str | None:
    try:
        with file.open("rb") as stream:
            return stream.read(_MOST).decode("utf-8", "replace").strip()
    except OSError:
        return None


def discover() -> dict[str, Any]:
    """Name -> probe, of every file in this folder."""
    modules = (m.name for m in iter_modules(__path__) if not m.name.startswith("_") and not m.ispkg)
    found = [import_module(f"{__name__}.{name}") for name in modules]
    return {probe.NAME: probe for probe in found}
