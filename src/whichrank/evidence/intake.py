"""What was given on the command line, as single files: folders walked, archives opened, bounds kept."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

from msgspec import Struct, field
from msgspec.structs import replace

from whichrank.evidence.packed import Limits, compression, is_archive, printable
from whichrank.model.contracts import Item, Reader
from whichrank.model.evidence import Quality, Source

if TYPE_CHECKING:
    from whichrank.evidence.archives import Unpacker

Given = Path | Literal["-"]

# Folders of programs and tools; a job's evidence is not in there.
SKIPPED_FOLDERS = {".git", "__pycache__", ".venv", "node_modules", "site-packages"}
ANSWER = "the known answer of a case, not evidence"
REPORT = "an earlier report of whichrank, not evidence"
_REPORTS = (".json", ".md", ".html", ".markdown")
HISTORY = "the small history of a watched job: for people, not evidence"
# What a person writes about a setting is a clue, the setting itself is none: MASTER_ADDR=127.0.0.1 is no complaint.
IGNORED = {
    "truth.yaml": ANSWER,
    "truth.yml": ANSWER,
    "truth.json": ANSWER,
    "scrub-report.json": "what scrub replaced and left out, not evidence",
    "history.jsonl": HISTORY,
    "history.older.jsonl": HISTORY,
    "manifest.json": "the list of a bundle's files, not evidence",
}
DOCUMENTS = (
    "readme",
    "origin",
    "changelog",
    "contributing",
    "license",
    "install",
    "release",
    "security",
    "code_of_conduct",
)
PASTE_LIMIT = 256 << 20
DEFAULT = Limits()


class Intake(Struct):
    """The files to read, and what was refused or left aside with the reason."""

    items: list[Item] = field(default_factory=list)
    refused: list[Source] = field(default_factory=list)


@contextmanager
def collect(paths: Sequence[Given], *, limits: Limits = DEFAULT, stdin: BinaryIO | None = None) -> Iterator[Intake]:
    """Gather the evidence; unpacked files live until the context is left."""
    with ExitStack() as stack:
        walk = _Walk(limits, stack, _common_folder(paths))
        for path in paths:
            if path == "-":
                walk.paste(stdin or sys.stdin.buffer)
            else:
                walk.given(path)
        walk.end()
        walk.intake.refused += walk.refused_inside
        yield walk.intake


@cache
def discover_readers() -> tuple[Reader, ...]:
    """The readers that exist, by their files; more specific names first, so that they may claim first."""
    from pkgutil import iter_modules

    package = import_module("whichrank.evidence.readers")
    names = [module.name for module in iter_modules(package.__path__) if not module.name.startswith("_")]
    names.sort(key=lambda name: (-len(name.split("_")), name))
    modules = [import_module(f"{package.__name__}.{name}") for name in names]
    # Files without the three attributes help other readers.
    return tuple(cast("Reader", m) for m in modules if all(hasattr(m, a) for a in ("NAME", "sniff", "read")))


def claims(item: Item, readers: Sequence[Reader] | None = None) -> list[Reader]:
    """Every reader that recognises the file, in stable order; a log may speak for several programs."""
    head = item.head()
    name = item.label.rsplit("/", 1)[-1]
    known = readers or discover_readers()
    found = [reader for reader in known if reader.sniff(head, name)]
    if not found and _is_trace(item):  # its events begin far behind the head
        found = [reader for reader in known if reader.NAME == "kineto"]
    return found


def claim(item: Item, readers: Sequence[Reader] | None = None) -> Reader | None:
    """The first reader that recognises the file."""
    return next(iter(claims(item, readers)), None)


class _Walk:
    """One pass over what was given."""

    def __init__(self, limits: Limits, stack: ExitStack, base: Path) -> None:
        self.limits, self.stack, self.base = limits, stack, base
        self.intake = Intake()
        self.refused_inside: list[Source] = []
        """Of archives; told behind the rest."""
        self.seen: set[tuple[int, int]] = set()
        self.documents: list[Item] = []
        """Descriptions of evidence; they are evidence themselves where there is nothing else."""
        self.full = False

    @cached_property
    def unpacker(self) -> Unpacker:
        """With a folder that is there until the context is left: most evidence needs none."""
        from shutil import disk_usage
        from tempfile import TemporaryDirectory

        from whichrank.evidence.archives import Unpacker

        folder = self.stack.enter_context(TemporaryDirectory(prefix="whichrank-"))
        room = disk_usage(folder).free // 2
        bounded = replace(self.limits, unpacked=min(self.limits.unpacked, room))
        return Unpacker(Path(folder), bounded, self.refused_inside)

    def paste(self, stream: BinaryIO) -> None:
        from shutil import copyfileobj

        target = self.unpacker.folder / "stdin"
        with target.open("wb") as out:
            copyfileobj(_Head(stream, PASTE_LIMIT), out)
        size = target.stat().st_size
        if size == PASTE_LIMIT:
            self.note("stdin", "partial", f"only the first {PASTE_LIMIT >> 20} MiB were read")
        self.take(target, "stdin", target.stat())

    def given(self, path: Path) -> None:
        """What a user names is followed, also through links."""
        real = path.resolve()
        if real.is_dir():
            self.folder(real)
        else:
            self.file(real, self.label(path.parent.resolve() / path.name))

    def folder(self, root: Path) -> None:
        waiting = [(root, 0)]
        while waiting and not self.full:
            folder, depth = waiting.pop()
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                self.note(self.label(folder), "unusable", f"can't be listed: {error.strerror}")
                continue
            deeper: list[tuple[Path, int]] = []
            inside = self.label(folder / "-").removesuffix("-")
            for entry in entries:
                path = folder / entry.name
                if entry.is_symlink():
                    self.link(path, root)
                elif not entry.is_dir(follow_symlinks=False):
                    self.file(path, inside + printable(entry.name))
                elif depth + 1 >= self.limits.depth:
                    self.note(self.label(path), "ignored", f"more than {self.limits.depth} folders deep")
                elif entry.name not in SKIPPED_FOLDERS:
                    deeper.append((path, depth + 1))
            waiting += reversed(deeper)

    def link(self, path: Path, root: Path) -> None:
        """A link within the folder is followed to a file, never to a folder and never outside."""
        target = Path(os.path.realpath(path))
        if not target.is_relative_to(root):
            self.note(self.label(path), "ignored", "a link to a place outside the folder")
        elif target.is_file():
            self.file(target, self.label(path))

    def file(self, path: Path, label: str) -> None:
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                self.note(label, "ignored", "not a plain file")
            elif (status.st_dev, status.st_ino) not in self.seen:
                self.seen.add((status.st_dev, status.st_ino))
                self.take(path, label, status)
        except OSError as error:
            self.note(label, "unusable", f"can't be read: {error.strerror}")

    def take(self, path: Path, label: str, status: os.stat_result) -> None:
        self.item(Item(path, label, status.st_size, status.st_mtime_ns), 0)

    def item(self, item: Item, nested: int) -> None:
        """Keep a file, or open it if it is an archive."""
        name = item.label.rsplit("/", 1)[-1].lower()
        aside = "an empty file" if item.size == 0 else IGNORED.get(name, "")
        if not aside and name.endswith(_REPORTS):
            from whichrank.evidence.earlier_reports import is_earlier_report

            aside = REPORT if is_earlier_report(item.head()) else ""
        if aside:
            self.note(item.label, "ignored", aside)
        elif name.startswith(DOCUMENTS):
            self.documents.append(item)
        elif compression(item.head()) and _is_trace(item):  # read as it is, without being unpacked to disk first
            self.keep(item)
        elif not is_archive(item.head(512), name):
            for part in self.parts(item):
                self.keep(part)
        elif nested >= self.limits.nesting:
            self.note(item.label, "ignored", f"more than {self.limits.nesting} archives inside one another")
        else:
            for member in self.unpacker.unpack(item.path, item.label):
                self.item(member, nested + 1)

    def parts(self, item: Item) -> list[Item]:
        """One for each file and each job of a text that holds several, without what wraps every line."""
        if b"\0" in item.head():
            return [item]
        from whichrank.evidence import files_in_text, jobs_in_file
        from whichrank.evidence.wrapped_lines import unwrapped

        plain = unwrapped(item, self.room)
        return [part for file in files_in_text.split(plain, self.room) for part in jobs_in_file.split(file, self.room)]

    def room(self) -> Path:
        """Where files go that are taken out of others."""
        return self.unpacker.folder

    def end(self) -> None:
        """Tell descriptions apart from evidence, when all is known."""
        alone = not self.intake.items
        for document in self.documents:
            if alone:
                self.keep(document)
            else:
                self.note(document.label, "ignored", "a description, not evidence")

    def keep(self, item: Item) -> None:
        if len(self.intake.items) < self.limits.files:
            self.intake.items.append(item)
        elif not self.full:
            self.full = True
            self.note(item.label, "ignored", f"this and what follows: more than {self.limits.files:,} files")

    def label(self, path: Path) -> str:
        return printable(path.relative_to(self.base).as_posix() if path.is_relative_to(self.base) else str(path))

    def note(self, label: str, quality: Quality, note: str) -> None:
        self.intake.refused.append(Source(label, "", quality, note))


def _is_trace(item: Item) -> bool:
    from whichrank.evidence.trace_files import is_trace_file

    return is_trace_file(item)


class _Head:
    """At most so many bytes of a stream."""

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        self._stream, self._left = stream, limit

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(min(size, self._left) if size >= 0 else self._left)
        self._left -= len(piece)
        return piece


def _common_folder(paths: Sequence[Given]) -> Path:
    """The folder that labels are relative to: the innermost one that holds all that was given."""
    real = [path for path in paths if path != "-"]
    folders = [p.resolve() if p.is_dir() else p.parent.resolve() for p in real]
    return Path(os.path.commonpath(folders)) if folders else Path()
