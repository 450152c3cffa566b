"""What the verbs that read evidence share: the paths that were given, and the exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from whichrank.model.errors import UsageError

HEALTHY, FINDINGS, NOT_ENOUGH = 0, 1, 3


def evidence(paths: tuple[str, ...]) -> list[Path | Literal["-"]]:
    """The arguments as paths that exist."""
    given: list[Path | Literal["-"]] = []
    for text in paths:
        if text == "-":
            given.append("-")
        elif Path(text).exists():
            given.append(Path(text))
        else:
            raise UsageError(f"no such file or folder: {text}", "Give dumps, logs, folders or archives.")
    return given
