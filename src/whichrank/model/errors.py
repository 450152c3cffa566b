"""One tree of errors. What a user did wrong carries a hint with the next step."""

from __future__ import annotations


class WhichrankError(Exception):
    """Anything that whichrank raises on purpose."""

    exit_code = 4

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(WhichrankError):
    """The command was called in a way that can't work."""

    exit_code = 2


class UnreadableError(WhichrankError):
    """A piece of evidence can't be read: truncated, hostile, or another format."""

    exit_code = 3


class FactsError(WhichrankError):
    """A data file of the package is not what the loader expects."""
