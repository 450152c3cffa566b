"""What is wrong with these settings: of files, captured environments and processes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct

from whichrank.facts.variables.environment import version
from whichrank.flows.discovery import rules_below
from whichrank.flows.judging import judged
from whichrank.model.errors import UnreadableError
from whichrank.model.evidence import Coverage, Quality, Ref, Source
from whichrank.model.findings import Finding
from whichrank.records.settings import UNKNOWN, Assignment, Baked, ObservedWait, Settings, SettingsFile
from whichrank.source import launch

PRESENT = "the environment"
FILES_LIMIT = 20_000
SOURCED_LIMIT = 1 << 20
_WEIGHT = {"error": 0, "warning": 1, "info": 2}


class LintResult(Struct, frozen=True):
    """Findings in the order of files and lines, and what was looked at."""

    findings: tuple[Finding, ...]
    coverage: Coverage

    @property
    def unread(self) -> bool:
        """Nothing that was given could be read: no findings then means nothing."""
        return bool(self.coverage.sources) and all(s.quality == "unusable" for s in self.coverage.sources)

    @property
    def wrong(self) -> bool:
        return any(finding.severity != "info" for finding in self.findings)


def lint(
    files: Sequence[SettingsFile],
    *,
    torch: str | None = None,
    nccl: str | None = None,
    purpose: str | None = None,
    interfaces: Iterable[str] | None = None,
    hcas: Iterable[str] | None = None,
    waits: Iterable[ObservedWait] = (),
) -> LintResult:
    """Judge settings by every rule there is."""
    _apply_sourcing(files)
    settings = Settings(
        tuple(files),
        version(torch or ""),
        version(nccl or ""),
        purpose or "",
        None if interfaces is None else frozenset(interfaces),
        None if hcas is None else frozenset(hcas),
        tuple(waits),
    )
    said, found, clear, skipped = judged(rules_below("settings"), settings)
    order = {file.label: index for index, file in enumerate(files)}
    findings = _once(said)
    findings.sort(key=lambda f: (order.get(f.evidence[0].source, 0), f.evidence[0].line, _WEIGHT[f.severity], f.code))
    sources = tuple(Source(f.label, f.kind, _quality(f), f.note) for f in files)
    coverage = Coverage(sources, tuple(sorted(found)), tuple(sorted(clear)), tuple(skipped))
    return LintResult(tuple(findings), coverage)


def _quality(file: SettingsFile) -> Quality:
    return "unusable" if file.unread else "partial" if file.note else "complete"


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """A file that is given and sourced by another one tells its faults once."""
    found: dict[tuple[str, str, str, str], Finding] = {}
    for finding in findings:
        ref = finding.evidence[0]
        subject = finding.message if finding.code != "ENV117" else finding.message.split()[0]
        found.setdefault((finding.code, ref.source, ref.locator, subject), finding)
    return list(found.values())


def _apply_sourcing(files: Sequence[SettingsFile]) -> None:
    """What a script sources between `set -a` and `set +a` is exported, whatever that file says itself."""
    exported = {Path(path).name for file in files for path, all_of_it in file.included.items() if all_of_it}
    for file in files:
        if Path(file.label).name in exported:
            file.assignments[:] = [a._replace(how="export") if a.how == "local" else a for a in file.assignments]


_VISIBLE = frozenset({".github", ".devcontainer", ".vscode"})
_PROSE = frozenset({".md", ".rst", ".txt", ".log", ".html", ".csv", ".pdf", ".out", ".err", ".adoc"})


def read_path(path: Path, kind: str | None = None) -> list[SettingsFile]:
    """One file given on the command line, or all files of a folder that set something somewhere."""
    if not path.is_dir():
        return [_read(path, kind, path.parent)]
    files = islice(sorted(path.rglob("*")), FILES_LIMIT)
    shown = (file for file in files if not _hidden(file.relative_to(path)) and not file.is_symlink() and file.is_file())
    found = [_read(file, kind, path) for file in shown if _wanted(file, kind)]
    if not found:
        raise UnreadableError(f"nothing in {path} sets an environment", "Name the files, or say --as what they are.")
    return found


def _hidden(path: Path) -> bool:
    *folders, name = path.parts
    if any(part.startswith(".") and part not in _VISIBLE for part in folders):
        return True
    return name.startswith(".") and not name.startswith((".env", ".deepspeed_env", ".nccl.conf", ".gitlab-ci"))


def _wanted(file: Path, kind: str | None) -> bool:
    """Files whose name tells their kind; others if they look like an environment or name one of the variables."""
    if kind:
        return True
    if launch.is_named(file.name) and file.suffix != ".json":
        return True
    head = _head(file)
    if launch.is_capture(head):
        return True
    return file.suffix.lower() not in _PROSE and launch.speaks_of_settings(head)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(65_536)
    except OSError:
        return b""


def _read(path: Path, kind: str | None, root: Path) -> SettingsFile:
    try:
        with path.open("rb") as stream:
            data = stream.read(launch.SIZE_LIMIT + 1)
    except OSError as error:
        raise UnreadableError(f"can't read {path}: {error.strerror}") from error
    return launch.read(data, str(path), kind, lambda name: _sourced(name, path, root))


def _sourced(name: str, script: Path, root: Path) -> tuple[str, str] | None:
    """A file that a script sources, if it lies below the folder that was given."""
    file = script.parent / name.rpartition(UNKNOWN)[2].lstrip("/")
    try:
        inside = (
            file.resolve().is_relative_to(root.resolve()) and file.is_file() and file.stat().st_size < SOURCED_LIMIT
        )
        return (str(file), file.read_text("utf-8", "backslashreplace")) if inside and file != script else None
    except (OSError, ValueError):
        return None


def present_environment(environ: Mapping[str, str] | None = None, home: str | None = None) -> list[SettingsFile]:
    """This process's environment, and the configuration files that NCCL would read here, weakest first."""
    environ = os.environ if environ is None else environ
    user = environ.get("NCCL_CONF_FILE") or f"{home or environ.get('HOME', '')}/.nccl.conf"
    # NCCL reads the user's file first and never overwrites: /etc is weakest, the environment strongest.
    files = [conf for path in ("/etc/nccl.conf", user) if (conf := _conf(Path(path), PRESENT)) is not None]
    live = SettingsFile.empty(PRESENT, "environment")
    for name, value in environ.items():
        ref = Ref(PRESENT, f"variable {name}", f"{name}={value}"[:300])
        live.assignments.append(Assignment(name, value, ref, PRESENT, "process"))
    return [*files, live]


def _conf(path: Path, scope: str) -> SettingsFile | None:
    from whichrank.source import conf

    try:
        text = path.read_bytes()[: launch.SIZE_LIMIT].decode("utf-8", "backslashreplace")
    except OSError:
        return None
    file = conf.read(text, str(path), scope)
    if file.assignments:
        file.baked.append(Baked(str(path), file.assignments[0].ref))
    return file


def host_devices(root: Path = Path("/sys/class")) -> tuple[frozenset[str], frozenset[str]]:
    """Network interfaces and RDMA devices of this host."""
    return _names(root / "net"), _names(root / "infiniband")


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(entry.name for entry in folder.iterdir())
    except OSError:
        return frozenset()
