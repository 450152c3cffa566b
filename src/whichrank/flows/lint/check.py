"""What `lint` does: read a project's Python files, ask the rules on code, leave out what is marked."""

from __future__ import annotations

import os
import re
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from types import ModuleType

from msgspec import Struct, field

from whichrank.flows.discovery import discover_rules
from whichrank.flows.judging import judged
from whichrank.model.errors import UsageError
from whichrank.model.evidence import Coverage, Source
from whichrank.model.findings import Finding
from whichrank.source.code.index import PARSE_ERRORS, Module, read_module
from whichrank.source.code.read import blind_spots, read_project

Progress = Callable[[str, int, int], None]
READER = "python"
LARGEST, MANY_FILES, MOST_BLIND = 4 << 20, 50_000, 8
LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})
_IGNORE = re.compile(r"#\s*whichrank:\s*ignore(?:\[([A-Z0-9,\s*]*)\])?", re.IGNORECASE)
_ALIKE = {"rank0-only-collective": "conditional-collective"}
"""An operation under a condition on the rank, inside one on the data, is told once."""
_WEIGHT = {"error": 0, "warning": 1, "info": 2}


class CodeFile(Struct, frozen=True):
    path: Path
    label: str
    name: str
    """As imports call it."""


class CodeLint(Struct):
    """Findings in the order of files and lines, and what was looked at."""

    findings: list[Finding]
    coverage: Coverage
    suppressed: list[Finding] = field(default_factory=list)
    files: dict[str, CodeFile] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)

    @property
    def wrong(self) -> bool:
        return any(finding.severity != "info" for finding in self.findings)

    @property
    def read_any(self) -> bool:
        return any(source.quality in {"complete", "partial"} for source in self.coverage.sources)


def lint(
    paths: Sequence[Path],
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    progress: Progress | None = None,
) -> CodeLint:
    """Read all Python files below the paths as one project and judge them."""
    rules = chosen_rules(select, ignore)
    files = python_files(paths)
    modules: list[Module] = []
    sources: list[Source] = []
    for number, file in enumerate(files):
        if progress is not None:
            progress("reading", number, len(files))
        module, source = _read(file)
        sources.append(source)
        if module is not None:
            modules.append(module)
    if progress is not None:
        progress("following", 0, 1)
    case, analysis = read_project(modules)
    deep = {function.module.label for function in analysis.too_deep}
    noted = tuple(
        _with_note(s, "some functions are nested too deeply to follow") if s.path in deep else s for s in sources
    )
    findings, found, clear, skipped = judged(rules, case)
    lines = {module.label: module.lines for module in modules}
    kept, suppressed = _without_ignored(_distinct(findings), lines)
    coverage = Coverage(noted, tuple(found), tuple(clear), tuple(skipped))
    return CodeLint(kept, coverage, suppressed, {file.label: file for file in files}, lines)


def lint_texts(texts: Mapping[str, str]) -> list[Finding]:
    """The same for code that is in no files, by label; what does not parse is left out."""
    modules = []
    for label, text in texts.items():
        try:
            modules.append(read_module(text, label, Path(label).stem))
        except PARSE_ERRORS:
            continue
    case, _ = read_project(modules)
    lines = {module.label: module.lines for module in modules}
    return _without_ignored(_distinct(judged(chosen_rules((), ()), case).findings), lines)[0]


def chosen_rules(select: Sequence[str], ignore: Sequence[str]) -> list[ModuleType]:
    """The rules whose codes begin with what is selected and not with what is ignored."""
    rules = discover_rules("code")
    for given in (*select, *ignore):
        if not any(rule.CODE.startswith(given.upper()) for rule in rules):
            known = ", ".join(rule.CODE for rule in rules)
            raise UsageError(f"no rule has a code like '{given}'", f"The rules are {known}.")
    wanted = tuple(code.upper() for code in select) or ("",)
    unwanted = tuple(code.upper() for code in ignore)
    return [r for r in rules if r.CODE.startswith(wanted) and not (unwanted and r.CODE.startswith(unwanted))]


def python_files(paths: Sequence[Path]) -> list[CodeFile]:
    """The files, named relative to what was given."""
    found: dict[Path, None] = {}
    for path in paths:
        for file in _below(path) if path.is_dir() else [path]:
            found.setdefault(file)
    if len(paths) == 1:
        base = paths[0] if paths[0].is_dir() else paths[0].parent
    else:
        base = Path(os.path.commonpath([p.absolute() if p.is_dir() else p.absolute().parent for p in paths]))
    return [CodeFile(file, _relative(file, base), _module_name(file, base)) for file in found]


def _below(folder: Path) -> Iterator[Path]:
    count = 0
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name not in LEFT_OUT and not name.startswith(".") and not Path(root, name, "pyvenv.cfg").exists()
        )
        for name in sorted(names):
            if name.endswith(".py"):
                count += 1
                if count > MANY_FILES:
                    raise UsageError(
                        f"more than {MANY_FILES:,} Python files below {folder}", "Give the training code alone."
                    )
                yield Path(root, name)


def _relative(file: Path, base: Path) -> str:
    try:
        return file.absolute().relative_to(base.absolute()).as_posix()
    except ValueError:
        return file.as_posix()


def _module_name(file: Path, base: Path) -> str:
    """The dotted name: from the outermost package on, or from the folder that was given."""
    parts = [file.stem]
    folder = file.absolute().parent
    if (folder / "__init__.py").exists():
        while (folder / "__init__.py").exists() and folder.name:
            parts.append(folder.name)
            folder = folder.parent
    else:
        parts += reversed(Path(_relative(file, base)).parent.parts)
    name = ".".join(reversed(parts))
    return name.removesuffix(".__init__")


def _read(file: CodeFile) -> tuple[Module | None, Source]:
    try:
        if file.path.stat().st_size > LARGEST:
            return None, Source(file.label, READER, "ignored", "larger than 4 MiB")
        data = file.path.read_bytes()
    except OSError as error:
        return None, Source(file.label, READER, "unusable", f"can't be read: {error.strerror}")
    try:
        encoding, _ = tokenize.detect_encoding(BytesIO(data).readline)
        module = read_module(data.decode(encoding), file.label, file.name)
    except (LookupError, *PARSE_ERRORS) as error:
        line = f" on line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        return None, Source(
            file.label, READER, "unusable", f"not Python that can be parsed: {type(error).__name__}{line}"
        )
    blind = list(blind_spots(module))
    if not blind:
        return module, Source(file.label, READER, "complete")
    said = ", ".join(f"{what} on line {line}" for line, what in blind[:MOST_BLIND])
    more = f" and {len(blind) - MOST_BLIND} more" if len(blind) > MOST_BLIND else ""
    return module, Source(file.label, READER, "partial", f"can't be followed: {said}{more}")


def _with_note(source: Source, note: str) -> Source:
    return Source(source.path, source.reader, "partial", f"{source.note}; {note}" if source.note else note)


def _distinct(findings: list[Finding]) -> list[Finding]:
    """One finding per operation and cause: the surest; in the order of files and lines."""
    best: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        first = finding.evidence[0]
        key = (first.source, first.locator, _ALIKE.get(finding.cause or "", finding.cause) or finding.code)
        known = best.get(key)
        if known is None or _rank(finding) < _rank(known):
            best[key] = finding
    return sorted(best.values(), key=lambda f: (f.evidence[0].source, f.evidence[0].line, f.code))


def _rank(finding: Finding) -> tuple[int, float, str]:
    return _WEIGHT[finding.severity], -finding.confidence, finding.code


def _without_ignored(findings: list[Finding], lines: dict[str, list[str]]) -> tuple[list[Finding], list[Finding]]:
    kept: list[Finding] = []
    suppressed: list[Finding] = []
    for finding in findings:
        first = finding.evidence[0]
        (suppressed if _ignored(finding.code, lines.get(first.source, []), first.line) else kept).append(finding)
    return kept, suppressed


def _ignored(code: str, lines: list[str], line: int) -> bool:
    """Whether the line, or a comment of its own right above it, says so."""
    places = [line]
    if line >= 2 and line - 2 < len(lines) and lines[line - 2].lstrip().startswith("#"):
        places.append(line - 1)
    for number in places:
        match = _IGNORE.search(lines[number - 1]) if 0 < number <= len(lines) else None
        if match is not None:
            codes = [word.strip().upper() for word in (match[1] or "*").split(",")]
            if "*" in codes or any(word and code.startswith(word) for word in codes):
                return True
    return False
