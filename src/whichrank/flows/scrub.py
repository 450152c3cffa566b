"""A copy of evidence that is safe to share: names are learned and replaced, what can't be rewritten is left out."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory, mkdtemp
from typing import BinaryIO

from msgspec import Struct, field
from msgspec.structs import replace

from whichrank import __version__
from whichrank.evidence.packed import Limits
from whichrank.evidence.scrubbing import manifests, packing, pickle_strings, texts, words_file
from whichrank.evidence.scrubbing.kinds import ARCHIVES, COMPRESSED, TEXTS
from whichrank.evidence.scrubbing.tree import File, Survey
from whichrank.evidence.scrubbing.voices import Listening, Replacing, Voice
from whichrank.facts.redaction.names import Names
from whichrank.facts.redaction.redactor import Redactor
from whichrank.model.errors import UnreadableError, UsageError

REPORT = "scrub-report.json"
Progress = Callable[[str, int, int], None]


class Scrubbed(Struct):
    """What was done; nothing in it says what was there before."""

    out: Path
    files: int = 0
    changed: dict[str, int] = field(default_factory=dict)
    """Replacements by kind."""
    names: dict[str, int] = field(default_factory=dict)
    """Distinct hosts, users and so on."""
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """Path in the copy's names, and why."""

    def document(self) -> dict[str, object]:
        return {
            "schema_version": 1,
            "tool": {"name": "whichrank", "version": __version__},
            "files": self.files,
            "changed": dict(sorted(self.changed.items())),
            "names": self.names,
            "left_out": [{"path": path, "why": why} for path, why in self.left_out],
        }


def scrub(given: Path, out: Path, *, key: bytes, progress: Progress | None = None) -> Scrubbed:
    """Write the copy to `out`, a folder that does not exist yet or is empty: whole, or not at all."""
    out = Path(os.path.abspath(out))  # noqa: PTH100 - a link in place of the copy is not followed
    _check(given, out)
    limits = Limits()
    with ExitStack() as stack:
        room = Path(stack.enter_context(TemporaryDirectory(prefix="whichrank-")))
        free = shutil.disk_usage(room).free // 2
        files = Survey(room, replace(limits, unpacked=min(limits.unpacked, free))).look(given)
        out.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        stack.callback(shutil.rmtree, draft, ignore_errors=True)
        done = _copy(files, draft, room, key, progress or (lambda *_: None))
        done.out = out
        _write_new(draft / REPORT, json.dumps(done.document(), indent=2).encode() + b"\n")
        if out.exists():
            out.rmdir()
        draft.rename(out)
    return done


def _check(given: Path, out: Path) -> None:
    if not given.exists():
        raise UsageError(f"no such file or folder: {given}", "Give the folder of a bundle or of a run, or an archive.")
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise UsageError(f"'{out}' is not an empty folder", "Give --out a folder that does not exist yet.")
    if given.is_dir() and out.resolve().is_relative_to(given.resolve()):
        raise UsageError("the copy can't be inside the folder that is copied", "Give --out a folder elsewhere.")


def _copy(files: Sequence[File], draft: Path, room: Path, key: bytes, progress: Progress) -> Scrubbed:
    names = Names()
    leaves = [leaf for file in files for leaf in file.leaves()]
    listening = Listening(names)
    for done, leaf in enumerate(leaves):
        progress("looking for names", done, len(leaves))
        _learn(leaf, listening)
    for file in files:
        _learn_names(file, listening, names)
    names.close()
    redactor = Redactor(names, key)
    copier = _Copier(redactor, Replacing(names, redactor), room, progress, len(leaves))
    copier.tree(files, draft, "")
    shown = ("hosts", "domains", "users", "accounts", "persons", "secrets")
    return Scrubbed(
        draft, copier.files, dict(redactor.counts), {name: len(getattr(names, name)) for name in shown}, copier.left_out
    )


def _learn_names(file: File, voice: Voice, names: Names) -> None:
    """Names in paths: a folder that is called by a word of no trade is called by a person or a project."""
    voice.text(f"/{file.name}\n")
    for folder in PurePosixPath(file.name).parts[:-1]:
        if folder.isalpha() and folder.islower() and len(folder) > 4:
            names.learn_user(folder, sure=False)
    for member in file.members:
        _learn_names(member, voice, names)


def _learn(leaf: File, voice: Voice) -> None:
    content = manifests.parsed(leaf.name, leaf.path)
    if content is not None:
        manifests.listen(content, voice)
    try:
        with leaf.path.open("rb") as source:
            rewrite(leaf.kind, source, _Sink(), voice)
    except UnreadableError as error:
        leaf.left_out = error.message
    except OSError as error:
        leaf.left_out = f"can't be read: {error.strerror}"


class _Sink(io.RawIOBase):
    """Takes everything and keeps nothing but the amount."""

    def __init__(self) -> None:
        super().__init__()
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        size = len(data)  # type: ignore[arg-type]
        self._size += size
        return size

    def tell(self) -> int:
        return self._size


def rewrite(kind: str, source: BinaryIO, target: BinaryIO | _Sink, voice: Voice) -> None:
    """One file through the voice, in its own format."""
    voice.begin()
    if kind in TEXTS:
        texts.rewrite(source, target, voice, TEXTS[kind])  # type: ignore[arg-type]
    elif kind == "pickle":
        pickle_strings.rewrite(source, target, voice)  # type: ignore[arg-type]
    elif kind == "words":
        words_file.rewrite(source, target, voice)  # type: ignore[arg-type]
    else:
        raise UnreadableError("an unknown binary format")


class _Copier:
    """Writes trees of files under their new names."""

    def __init__(self, redactor: Redactor, voice: Voice, room: Path, progress: Progress, total: int) -> None:
        self._redactor, self._voice, self._room = redactor, voice, room
        self._progress, self._total = progress, total
        self.files = 0
        self.left_out: list[tuple[str, str]] = []

    def tree(self, files: Sequence[File], folder: Path, label: str) -> list[packing.Packed]:
        """Write the files into a folder; manifests last, since they tell of the others."""
        taken: set[str] = set()
        copied: dict[str, tuple[str, str]] = {}
        left: dict[str, str] = {}
        written: list[packing.Packed] = []
        manifest_files = []
        for file in files:
            new = self._new_name(file.name, taken)
            if not file.left_out and manifests.parsed(file.name, file.path) is not None:
                manifest_files.append((file, new))
                continue
            target = folder / new
            try:
                self._one(file, target, f"{label}{new}")
            except UnreadableError as error:
                file.left_out = error.message
            if file.left_out:
                target.unlink(missing_ok=True)
                left[file.name] = file.left_out
                self.left_out.append((f"{label}{new}", file.left_out))
                continue
            self._settle(target, file.mtime_ns)
            copied[file.name] = (new, _digest(target))
            written.append((new, target, file.mtime_ns))
        for file, new in manifest_files:
            written.append(self._manifest(file, new, folder, copied, left))
        return written

    def _settle(self, target: Path, mtime_ns: int) -> None:
        """Readers compare the times of files."""
        os.utime(target, ns=(mtime_ns, mtime_ns))

    def _manifest(
        self, file: File, new: str, folder: Path, copied: dict[str, tuple[str, str]], left: dict[str, str]
    ) -> packing.Packed:
        content = manifests.parsed(file.name, file.path) or {"files": []}
        base, new_base = PurePosixPath(file.name).parent.as_posix(), PurePosixPath(new).parent.as_posix()
        here = {_under(old, base): (_under(there, new_base), digest) for old, (there, digest) in copied.items()}
        gone = {_under(old, base): why for old, why in left.items()}
        _write_new(folder / new, manifests.rewritten(content, self._voice, here, gone))
        self.files += 1
        self._settle(folder / new, file.mtime_ns)
        return new, folder / new, file.mtime_ns

    def _new_name(self, name: str, taken: set[str]) -> str:
        new = base = self._redactor.path(name)
        count = 1
        while new in taken or new == REPORT or any(part in ("", ".", "..") for part in new.split("/")):
            count += 1
            new = f"{base}-{count}" if base.strip("./") else f"file-{count}"
        taken.add(new)
        return new

    def _one(self, file: File, target: Path, label: str) -> None:
        if file.left_out:
            return
        _folders(target.parent)
        if file.kind in ARCHIVES or file.kind in COMPRESSED:
            self._archive(file, target, label)
            return
        self.files += 1
        self._progress("writing the copy", self.files, max(self._total, self.files))
        with file.path.open("rb") as source, _new_file(target) as out:
            rewrite(file.kind, source, out, self._voice)

    def _archive(self, file: File, target: Path, label: str) -> None:
        with TemporaryDirectory(dir=self._room) as inside:
            members = self.tree(file.members, Path(inside), f"{label}/")
            if not members:
                file.left_out = "nothing in it could be rewritten"
                return
            with _new_file(target) as out:
                if file.kind == "zip":
                    packing.zip_(members, out)
                elif file.kind == "tar":
                    packing.tar(members, out)
                elif file.inner == "tar":
                    plain = Path(inside) / "*.tar"
                    with plain.open("xb") as joined:
                        packing.tar(members, joined)
                    packing.compress(plain, out, file.kind)
                else:
                    packing.compress(members[0][1], out, file.kind)


def _under(path: str, base: str) -> str:
    return path.removeprefix(f"{base}/") if base != "." else path


def _folders(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def _new_file(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb")


def _write_new(path: Path, data: bytes) -> None:
    _folders(path.parent)
    with _new_file(path) as out:
        out.write(data)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
