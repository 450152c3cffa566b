"""Which kind of file this is, and what it sets."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import PurePosixPath

from whichrank.records.settings import SettingsFile

SIZE_LIMIT = 8 * 1024 * 1024
# Kind -> the module that reads it, imported only when there is something of that kind.
KINDS = {
    "shell": "shell",
    "dockerfile": "dockerfile",
    "manifest": "manifest",
    "python": "program",
    "nccl.conf": "conf",
    "environment": "captured",
}
_SUFFIXES = {
    ".py": "python", ".sh": "shell", ".bash": "shell", ".zsh": "shell", ".sbatch": "shell", ".slurm": "shell",
    ".slrm": "shell", ".pbs": "shell", ".lsf": "shell", ".job": "shell", ".csh": "shell", ".batch": "shell",
    ".yaml": "manifest", ".yml": "manifest", ".dockerfile": "dockerfile",
    ".environ": "environment",
}  # fmt: skip


def _by_name(name: str) -> str:
    path = PurePosixPath(name)
    base = path.name.lower()
    if base == "nccl.conf" or base.endswith(".nccl.conf"):
        return "nccl.conf"
    if base.startswith(("dockerfile", "containerfile")) or base.endswith((".dockerfile", ".containerfile")):
        return "dockerfile"
    return _SUFFIXES.get(path.suffix.lower(), "")


def is_named(name: str) -> bool:
    """The name alone says what kind of file it is."""
    return bool(_by_name(name))


def is_capture(head: bytes) -> bool:
    """A file without a telling name that begins as a captured environment does."""
    from whichrank.source import captured

    text = head.decode("utf-8", "backslashreplace")
    return captured.looks_like(text.replace("\0", "\n"))


def kind_of(name: str, text: str) -> str:
    """The kind of a file, by its name, else by how it begins."""
    if named := _by_name(name):
        return named
    if "\0" in text:
        return "environment"
    return _by_content(text)


def _by_content(text: str) -> str:
    first = next((line for line in text.split("\n", 50) if line.strip()), "")
    if first.startswith("#!"):
        return "python" if "python" in first else "shell"
    if re.match(r"(?:# syntax=|ARG\s|FROM\s+\S)", first) and re.search(r"^FROM\s+\S", text, re.MULTILINE):
        return "dockerfile"
    if re.search(r"^(?:apiVersion|kind|services|version):", text, re.MULTILINE):
        return "manifest"
    from whichrank.source import captured

    if captured.looks_like(text):
        return "environment"
    if re.search(r"^(?:import|from)\s+\w", text, re.MULTILINE):
        return "python"
    return "shell"


def read(data: bytes, label: str, kind: str | None = None) -> SettingsFile:
    """What one file sets. Bytes that are no UTF-8 are spelled out; only the first megabytes are read."""
    text = data[:SIZE_LIMIT].decode("utf-8", "backslashreplace")
    chosen = kind or kind_of(label, text)
    reader = import_module(f"whichrank.source.{KINDS[chosen]}")
    out: SettingsFile = reader.read(text if chosen == "environment" else text.replace("\r\n", "\n"), label)
    if len(data) > SIZE_LIMIT:
        out.note = f"only the first {SIZE_LIMIT // 1024 // 1024} MiB were read"
    return out
