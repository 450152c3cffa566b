"""Shell scripts and batch files: what they export, what of it reaches the training, and what only seems to."""

from __future__ import annotations

from whichrank.records.settings import SettingsFile
from whichrank.source.shell.interpret import Interpreter, Neighbour

KIND = "shell"


def read(text: str, label: str, first_line: int = 1, neighbour: Neighbour | None = None) -> SettingsFile:
    """What a script sets. Never raises: what is not understood is passed over."""
    return Interpreter(SettingsFile.empty(label, KIND), text.split("\n"), first_line, neighbour).run(text)
