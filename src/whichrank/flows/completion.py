"""Completion for shells: the script of each shell, and where a shell looks for it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from whichrank.model.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
MARK = "# completion of whichrank"


class Installed(Struct, frozen=True):
    """What was written."""

    script: Path
    startup: Path | None
    """The file that the shell reads when it starts, where a line was needed there."""
    is_new: bool
    """Whether that line was added now."""


def shell_of(environment: Mapping[str, str]) -> str:
    """The shell of the user."""
    name = Path(environment.get("SHELL", "")).name
    if name not in SHELLS:
        raise UsageError(
            f"can't tell your shell (SHELL={environment.get('SHELL', '')})",
            f"Name it: whichrank completion {'|'.join(SHELLS)}",
        )
    return name


def install(shell: str, script: str, environment: Mapping[str, str]) -> Installed:
    """Write the script where the shell finds it; fish looks into a folder, bash and zsh need a line at start-up."""
    home = Path(environment.get("HOME") or Path.home())
    data = Path(environment.get("XDG_DATA_HOME") or home / ".local/share") / "whichrank"
    if shell == "fish":
        config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
        target = config / "fish/completions/whichrank.fish"
        _replace(target, script)
        return Installed(target, None, is_new=False)
    target = data / f"completion.{shell}"
    _replace(target, script)
    startup = Path(environment.get("ZDOTDIR") or home) / ".zshrc" if shell == "zsh" else home / ".bashrc"
    return Installed(target, startup, is_new=_add_line(startup, _line(shell, target)))


def _line(shell: str, target: Path) -> str:
    quoted = "'" + str(target).replace("'", "'\\''") + "'"
    load = f"[ -r {quoted} ] && . {quoted}"
    if shell == "zsh":  # the script registers itself with zsh's completion, which may not be loaded yet
        load = f"(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }}; {load}"
    return f"{load}  {MARK}"


def _add_line(startup: Path, line: str) -> bool:
    """Whether the line had to be added; an older one of ours is replaced."""
    try:
        text = startup.read_text(encoding="utf-8", errors="surrogateescape") if startup.exists() else ""
        kept = [old for old in text.splitlines() if not old.endswith(MARK)]
        if line in text.splitlines():
            return False
        startup.write_text("\n".join([*kept, line]) + "\n", encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"{startup} can't be written: {error.strerror}", f"Add this line to it: {line}") from error
    return True


def _replace(target: Path, text: str) -> None:
    """Write the file whole, or leave the old one."""
    draft = ""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(prefix=".whichrank-", dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        Path(draft).replace(target)
    except OSError as error:
        if draft:
            Path(draft).unlink(missing_ok=True)
        raise UsageError(
            f"{target} can't be written: {error.strerror}",
            'Without a file: eval "$(whichrank completion bash)" in the start-up file of your shell.',
        ) from error
