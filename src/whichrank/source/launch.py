"""Which kind of file this is, and what it sets."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from whichrank.facts.releases import said_in
from whichrank.records.settings import SettingsFile

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Neighbour

SIZE_LIMIT = 8 * 1024 * 1024
# Kind -> the module that reads it and its function, imported only when there is something of that kind.
KINDS = {
    "shell": "shell.read",
    "dockerfile": "dockerfile.read",
    "manifest": "manifest.read",
    "json": "manifest.read_json",
    "python": "program.read",
    "systemd": "systemd.read",
    "makefile": "makefile.read",
    "env-file": "env_file.read",
    "nccl.conf": "conf.read",
    "environment": "captured.read",
}
_SUFFIXES = {
    ".py": "python", ".sh": "shell", ".bash": "shell", ".zsh": "shell", ".sbatch": "shell", ".slurm": "shell",
    ".slrm": "shell", ".pbs": "shell", ".lsf": "shell", ".job": "shell", ".csh": "shell", ".batch": "shell",
    ".bsub": "shell", ".qsub": "shell", ".sge": "shell", ".ksh": "shell",
    ".yaml": "manifest", ".yml": "manifest", ".dockerfile": "dockerfile", ".json": "json", ".jsonc": "json",
    ".environ": "environment", ".mk": "makefile", ".env": "env-file",
    ".service": "systemd", ".timer": "systemd", ".socket": "systemd",
}  # fmt: skip
# Formats that may set variables and that are not read; said to be so instead of "clean".
_UNREADABLE = {
    ".tf": "Terraform", ".hcl": "HCL", ".nomad": "Nomad", ".toml": "TOML", ".ps1": "PowerShell", ".fish": "fish",
    ".rb": "Ruby", ".groovy": "Groovy", ".lua": "Lua", ".ipynb": "a notebook", ".jl": "Julia",
    ".bat": "a Windows batch file", ".cmd": "a Windows batch file",
    ".nix": "Nix", ".cue": "CUE", ".jsonnet": "Jsonnet", ".libsonnet": "Jsonnet",
    ".ini": "INI", ".cfg": "INI", ".xml": "XML", ".go": "Go", ".ts": "TypeScript", ".js": "JavaScript",
    ".def": "a Singularity definition", ".sub": "HTCondor", ".star": "Starlark",
    ".dhall": "Dhall", ".pl": "Perl", ".tcl": "Tcl", ".nu": "nushell",
}  # fmt: skip


def _by_name(name: str) -> str:
    path = PurePosixPath(name)
    base = path.name.lower()
    if base == "nccl.conf" or base.endswith(".nccl.conf"):
        return "nccl.conf"
    if base.startswith(("dockerfile", "containerfile")) or base.endswith((".dockerfile", ".containerfile")):
        return "dockerfile"
    if base in {"makefile", "gnumakefile"} or base.startswith("makefile."):
        return "makefile"
    if base.endswith(("deepspeed_env", ".env")) or base.startswith(".env."):
        return "env-file"
    if base.endswith(".conf") and "systemd" in name:
        return "systemd"
    return _SUFFIXES.get(path.suffix.lower(), "")


def is_named(name: str) -> bool:
    """The name alone says what kind of file it is."""
    return bool(_by_name(name))


def speaks_of_settings(head: bytes) -> bool:
    """A file without a telling name in which one of the variables stands."""
    return bool(re.search(rb"\b(?:TORCH_)?(?:NCCL|GLOO|FR)_[A-Z][A-Z0-9_]+", head)) and b"\0\0" not in head


def is_capture(head: bytes) -> bool:
    """A file without a telling name that begins as a captured environment does."""
    from whichrank.source import captured

    text = head.decode("utf-8", "backslashreplace")
    return captured.looks_like(text.replace("\0", "\n"))


def kind_of(name: str, text: str) -> str:
    """The kind of a file, by its name, else by how it begins; empty where nothing reads it."""
    named = _by_name(name)
    if named == "env-file" and re.search(r"^PATH=", text, re.MULTILINE) and re.search(r"^HOME=", text, re.MULTILINE):
        return "environment"  # `env > rank0.env`
    if named:
        return named
    if "\0" in text:
        return "environment"
    if PurePosixPath(name).suffix.lower() in _UNREADABLE:
        return ""
    return _by_content(text)


def _by_content(text: str) -> str:
    first = next((line for line in text.split("\n", 50) if line.strip()), "")
    if first.startswith("#!"):
        return _by_interpreter(first)
    if re.match(r"(?:# syntax=|ARG\s|FROM\s+\S)", first) and re.search(r"^FROM\s+\S", text, re.MULTILINE):
        return "dockerfile"
    if first.lstrip().startswith("{") and re.search(r'"[\w.-]+"\s*:', text):
        return "json"
    from whichrank.source import captured

    for kind, pattern in _TELLING.items():
        if kind == "python" and captured.looks_like(text):
            return "environment"
        if re.search(pattern, text, re.MULTILINE):
            return kind
    return ""


# Kind -> what stands in a file of it; tried in this order.
_TELLING = {
    "systemd": r"^\[(?:Service|Unit)\]\s*$",
    "manifest": r"^(?:apiVersion|kind|services|version|envs|num_nodes|runtime_env|env_vars):",
    "python": r"^(?:import|from)\s+\w[\w.]*(?:\s+import\b|\s*$|\s+as\b)",
    "makefile": r"^[\w.-]+\s*:(?!=).*\n\t",
    "shell": (
        r"^\s*(?:export\s+\w+|(?:\w+=\S*\s+)*(?:torchrun|srun|mpirun|mpiexec|python3?|accelerate|deepspeed|docker|env"
        r"|sudo|ssh)\s|if\s+\[|for\s+\w+\s+in\s|set\s+-|source\s|setenv\s|[A-Za-z_]\w*=|#SBATCH|#PBS|#BSUB)"
    ),
}


def _by_interpreter(first: str) -> str:
    if "python" in first:
        return "python"
    if "make" in first:
        return "makefile"
    return "shell" if re.search(r"\b(?:ba|z|da|k|c|tc)?sh\b|\bslurm\b", first) else ""


def read(data: bytes, label: str, kind: str | None = None, neighbour: Neighbour | None = None) -> SettingsFile:
    """What one file sets. Bytes that are no UTF-8 are spelled out; only the first megabytes are read."""
    text = data[:SIZE_LIMIT].decode("utf-8", "backslashreplace")
    chosen = kind or kind_of(label, text)
    if not chosen:
        return _unread(label)
    module, _, function = KINDS[chosen].partition(".")
    reader = getattr(import_module(f"whichrank.source.{module}"), function)
    text = text if chosen == "environment" else text.replace("\r\n", "\n")
    try:
        out: SettingsFile = reader(text, label, neighbour=neighbour) if chosen == "shell" else reader(text, label)
    except RecursionError:
        out = SettingsFile.empty(label, "unread")
        out.unread, out.note = True, "it is nested too deeply"
        return out
    _described(out, text, label)
    if len(data) > SIZE_LIMIT:
        out.note = f"only the first {SIZE_LIMIT // 1024 // 1024} MiB were read"
    return out


_PRODUCTION = re.compile(r"(?:^|[-_.])prod(?:uction)?(?:[-_.]|$)", re.IGNORECASE)
_STAGE = re.compile(r"(?:[A-Z]+_)?(?:ENV|ENVIRONMENT|STAGE|TIER)")


def _described(out: SettingsFile, text: str, label: str) -> None:
    """What the file's name and comments say of the job, where nothing firmer does."""
    if _PRODUCTION.search(PurePosixPath(label).name):
        out.production.add(label)
    out.production.update(
        a.scope
        for a in out.assignments
        if _STAGE.fullmatch(a.name) and (a.value or "").lower() in {"prod", "production"}
    )
    if not out.torch and not out.nccl and not out.pinned and "#" in text:
        out.torch, out.nccl = said_in(re.findall(r"(?:^|\s)#(?!SBATCH|PBS|BSUB|!)([^\n]*)", text))


def _unread(label: str) -> SettingsFile:
    out = SettingsFile.empty(label, "unread")
    format_ = _UNREADABLE.get(PurePosixPath(label).suffix.lower())
    what = f"{format_} is not a format that is read" if format_ else "the format was not recognised"
    out.unread, out.note = True, f"{what}; say --as what it is if it is one of those"
    return out
