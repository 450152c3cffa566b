"""Where a report goes: the terminal, a pipe or a file."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from whichrank.model.errors import UsageError
from whichrank.model.files import replace_text


class Closed(io.TextIOBase):
    """Standard output that the caller has closed (`whichrank … >&-`): nothing is written to it unnoticed."""

    def write(self, _text: str) -> int:
        raise UsageError("standard output is closed", "Give --output FILE, or leave standard output open.")


def write(chunks: Iterable[str], output: Path | None) -> None:
    """Write a report to a file (whole or not at all) or to stdout; a reader that went away is not an error."""
    if output is not None:
        _write_file("".join(chunks), output)
        return
    # A path or a quote may hold characters that the terminal's encoding lacks.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        for chunk in chunks:
            sys.stdout.write(chunk)
    except BrokenPipeError:
        _silence_stdout()
    except OSError as error:
        raise unwritable(error) from error
    flush()


def must_be_writable(path: Path | None) -> None:
    """Say it before anything is measured that a report can't be written."""
    if path is not None and not (path.parent.is_dir() and os.access(path if path.exists() else path.parent, os.W_OK)):
        raise UsageError(f"can't write {path}", "The folder must exist and be writable.")


def tell(text: str) -> None:
    """One line on stderr; it may quote evidence, which must not drive the terminal."""
    from whichrank.report._words import safe

    click.echo(safe(text), err=True)


def told(text: str) -> None:
    """What a watch says: one line, or a report, which is safe and may have colours."""
    if "\n" in text:
        click.echo(text, err=True)
    else:
        tell(f"whichrank: {text}")


def flush() -> None:
    """Write out what is left while a broken pipe can still be met calmly."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
    except OSError as error:
        raise unwritable(error) from error


def unwritable(error: OSError) -> UsageError:
    """A full disk or a broken device behind stdout; what is left in the buffer goes nowhere."""
    _silence_stdout()
    return UsageError(f"can't write to standard output: {error.strerror}", "Free space, or give --output FILE.")


def _silence_stdout() -> None:
    """Send the rest of the output nowhere: its reader has gone (`… | head -1`)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_file(text: str, output: Path) -> None:
    try:
        if output.exists() and not output.is_file():  # /dev/stderr, a named pipe
            output.write_text(text, encoding="utf-8", errors="backslashreplace")
        else:
            replace_text(output, text)
    except OSError as error:
        raise UsageError(
            f"can't write {output}: {error.strerror}", "Give --output a file in a folder you may write to."
        ) from error
