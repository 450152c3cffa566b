"""The token that opens what listens: from a private file or the environment, never from the command line."""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from pathlib import Path

from whichrank.model.errors import UsageError

VARIABLE = "WHICHRANK_TOKEN"
LONGEST = 4096


def load_token(file: Path | None, environ: Mapping[str, str] = os.environ) -> str | None:
    """The token of this file, or else of the environment; None where neither is given."""
    if file is None:
        text = environ.get(VARIABLE, "")
        return _checked(text.strip(), VARIABLE) if text else None
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            data = stream.read(LONGEST + 1)
    except OSError as error:
        raise UsageError(f"can't read the token in {file}: {error.strerror}", "Give a file of your own.") from error
    if mode & 0o077:
        raise UsageError(f"others may read the token in {file}", "Give a private file of your own (mode 600).")
    return _checked(data.decode("utf-8", "replace").strip(), str(file))


def same_token(given: str, token: str) -> bool:
    """Whether they are the same, in a time that does not tell how far they agree."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _checked(token: str, place: str) -> str:
    if not token or len(token) > LONGEST or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"{place} holds no token", "A token is one word of plain letters and digits.")
    return token
