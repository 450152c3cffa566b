"""The token that opens what listens: from a private file or the environment, never from the command line."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from whichrank.model.errors import UsageError
from whichrank.model.files import private_folder

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
        raise UsageError(f"other users can read the token in {file}", "Give a private file of your own (mode 600).")
    return _checked(data.decode("utf-8", "replace").strip(), str(file))


def own_token() -> str:
    """A token that all processes of this user on this host share: kept in a private file, made when first needed."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    file = base / "whichrank" / f"token-{socket.gethostname()}"
    try:
        private_folder(file.parent)
        if not file.exists():
            handle, draft = tempfile.mkstemp(dir=file.parent, prefix=".token.")
            with os.fdopen(handle, "w", encoding="ascii") as stream:
                stream.write(secrets.token_hex(32) + "\n")
            with suppress(FileExistsError):  # another process was faster: its token counts
                os.link(draft, file)
            Path(draft).unlink()
        if file.lstat().st_uid != os.geteuid() or file.is_symlink():
            raise UsageError(f"the token in {file} belongs to another user", f"Set {VARIABLE}, or give --token-file.")
    except OSError as error:
        raise UsageError(
            f"can't keep a token in {file}: {error.strerror}", f"Set {VARIABLE}, or give --token-file."
        ) from error
    token = load_token(file)
    assert token is not None  # noqa: S101 - a file was given
    return token


def same_token(given: str, token: str) -> bool:
    """Whether they are the same, in a time that does not tell how far they agree."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _checked(token: str, place: str) -> str:
    if not token or len(token) > LONGEST or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"{place} holds no token", "A token is one word of plain letters and digits.")
    return token
