"""Put the settings for a purpose into this process's environment, before torch is imported."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

from whichrank.facts.variables.environment import catalogue, in_family, neighbour
from whichrank.facts.variables.purposes import recommended, without_those_set
from whichrank.facts.variables.values import problem
from whichrank.model.errors import UsageError
from whichrank.model.files import private_folder
from whichrank.model.settings import PURPOSES, Purpose, Setting


class TooLateError(UsageError):
    """torch has read its environment already."""


def configure(purpose: Purpose = "production", *, out: str | None = None, **overrides: str | None) -> list[Setting]:
    """Set what is not set yet, and say what was set and why.

    `out` is the folder for dumps and logs; it is made. `overrides` replace recommended values, or with None
    leave a variable out. What is in the environment already always stays.
    """
    if purpose not in PURPOSES:
        raise UsageError(f"there is no purpose '{purpose}'", f"Known are {', '.join(PURPOSES)}.")
    if "torch" in sys.modules:
        raise TooLateError(
            "whichrank.configure() came too late: torch is imported and has read parts of its environment",
            "Call it at the very top of the program, above `import torch` and all that imports torch.",
        )
    _check(overrides)
    folder = out or os.path.join(os.environ.get("TMPDIR") or "/tmp", f"whichrank-{os.getuid()}")  # noqa: S108, PTH118
    everything = [
        setting
        for setting in recommended(purpose, out=folder, torch=_installed("torch"), nccl=_nccl())
        if setting.name not in overrides
    ]
    everything += [
        Setting(name, value, "asked for by the program", "the program")
        for name, value in overrides.items()
        if value is not None
    ]
    settings, _kept = without_those_set(everything, os.environ)
    if any(folder in setting.value for setting in settings):
        _make(Path(folder), own=out is None)
    os.environ.update({setting.name: setting.value for setting in settings})
    return settings


def _make(folder: Path, *, own: bool) -> None:
    """The folder for dumps; one that the program did not name lies where others can write, and must be its own."""
    if own:
        private_folder(folder)
    else:
        folder.mkdir(parents=True, exist_ok=True)


def _check(overrides: dict[str, str | None]) -> None:
    for name, value in overrides.items():
        variable = catalogue().get(name)
        if variable is None and in_family(name) and not neighbour(name):
            from whichrank.facts.variables.near_names import nearest

            near = nearest(name)
            raise UsageError(f"nothing reads {name}", f"Did you mean {near}?" if near else "Leave it out.")
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{name} is not a string", f"Write it as '{value}'.")
        wrong = problem(variable, value) if variable and value is not None else None
        if wrong is not None and wrong.fatal:
            raise UsageError(f"{name}={value}: {wrong.message}", "Give a value that is read.")


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _nccl() -> str | None:
    return next((found for cuda in ("cu13", "cu12", "cu11") if (found := _installed(f"nvidia-nccl-{cuda}"))), None)
