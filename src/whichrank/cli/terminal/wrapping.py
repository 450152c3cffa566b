"""Lines for a terminal, no wider than it is; what goes into a pipe stays one line each."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator

NARROWEST, WIDEST = 40, 120


def width() -> int | None:
    """The columns of the terminal, or of COLUMNS; None where the output goes elsewhere."""
    if not (os.environ.get("COLUMNS", "").isdecimal() or sys.stdout.isatty()):
        return None
    return max(NARROWEST, min(shutil.get_terminal_size().columns, WIDEST))


def wrapped(line: str, hanging: int = 0) -> str:
    """The line, continued below its own beginning and so many columns further in."""
    columns = width()
    if columns is None or len(line) <= columns:
        return line
    indent = len(line) - len(line.lstrip(" ")) + hanging
    return textwrap.fill(
        line,
        columns,
        subsequent_indent=" " * min(indent, columns // 2),
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )


def fitted(chunks: Iterable[str]) -> Iterator[str]:
    """A text report, no wider than the terminal."""
    for line in "".join(chunks).splitlines():
        yield f"{wrapped(line, 4)}\n"
