"""Commands in values that no shell reads: `$(hostname)` and backquotes stay as they are."""

from __future__ import annotations

import re

from whichrank.model.evidence import Ref
from whichrank.records.settings import Lost

# `$(NAME)` alone may be a reference that the format knows; what has blanks or is the name of a program is none.
_COMMAND = re.compile(
    r"(?<!\$)\$\((?!\()(?:[\w./-]{1,60}[ \t][^)\n]{0,200}|hostname|nproc|date|whoami|pwd|uuidgen|arch)\)?"
    r"|`[A-Za-z./][^`\n]{0,200}`"
)


def command_in(text: str) -> str:
    """The first command that a shell would run in this text."""
    match = _COMMAND.search(text)
    return match.group() if match else ""


def lost(name: str, text: str, ref: Ref, who: str) -> Lost | None:
    """What becomes of a value with a command in it; who: the one that takes it as it is."""
    found = command_in(text)
    if not found:
        return None
    why = f"{who} runs no commands in values: {found} stays text"
    return Lost(name, ref, why, "Write the value itself, or set it in the shell that starts the program.")
