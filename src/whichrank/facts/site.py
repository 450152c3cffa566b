"""What a site adds to the built-in knowledge: folders with its own rules, signatures, causes and fixes.

A plug-in folder holds any of these:

    rules/*.py          rules, as in `whichrank.rules`
    signatures/*.ini    known messages, as in `whichrank.facts.signatures`
    causes.csv          causes that the taxonomy lacks
    fixes.csv           what people at this site should do first, by cause
    examples/CODE/      evidence on which the rule CODE must fire, and on which it must not

This module finds the folders and reads the tables. Nothing in a folder is executed here, and what can't be read is left
out with a note: a broken plug-in must never cost the verdict of the built-in rules.
"""

from __future__ import annotations

import csv
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import util
from io import FileIO
from pathlib import Path

from msgspec import Struct

from whichrank.model.errors import FactsError

VARIABLE = "WHICHRANK_RULES"
ENTRY_POINTS = "whichrank.rules"
ETC = Path("/etc/whichrank/rules")
CAUSE_COLUMNS = ("cause", "family", "usual_category", "meaning", "culprit")
FIX_COLUMNS = ("cause", "fix")
_LARGEST = 4 << 20
"""Bytes of one file of a plug-in; the largest built-in table has a tenth of it."""


class Plugin(Struct, frozen=True):
    """One folder, and who brought it."""

    folder: Path
    origin: str
    """`WHICHRANK_RULES`, `--rules`, a configuration folder, or the name of a package."""

    def rules(self) -> list[Path]:
        return [path for path in sorted(self.folder.glob("rules/*.py")) if not path.name.startswith("_")]

    def signatures(self) -> list[Path]:
        return sorted(self.folder.glob("signatures/*.ini"))


class Problem(Struct, frozen=True):
    """Something of a plug-in that was left out."""

    path: Path
    why: str


@cache
def plugins() -> tuple[Plugin, ...]:
    """All folders in use, each once, in the order in which they are read."""
    found: dict[Path, Plugin] = {}
    for plugin in _named():
        if plugin.folder.is_dir() and not _anyone_writes(plugin.folder):
            found.setdefault(plugin.folder.resolve(), plugin)
    return tuple(found.values())


@cache
def problems() -> tuple[Problem, ...]:
    """Folders that were named and can't be used."""
    found = []
    for plugin in _named():
        if not plugin.folder.is_dir():
            found.append(Problem(plugin.folder, f"no such folder (named by {plugin.origin})"))
        elif _anyone_writes(plugin.folder):
            found.append(Problem(plugin.folder, "anyone may write to it, so its rules are not run: chmod o-w"))
    return tuple(found)


@cache
def _named() -> tuple[Plugin, ...]:
    listed = [Plugin(Path(text), VARIABLE) for text in os.environ.get(VARIABLE, "").split(os.pathsep) if text.strip()]
    return (*listed, *(Plugin(folder, str(folder)) for folder in _configured() if folder.is_dir()), *_packaged())


def _configured() -> tuple[Path, ...]:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    home = os.environ.get("HOME", "")
    own = Path(base) if base.startswith("/") else Path(home or "/nonexistent") / ".config"
    return (own / "whichrank" / "rules", ETC)


def _packaged() -> Iterator[Plugin]:
    """Packages that say so by an entry point: its value is the package whose folder is the plug-in.

    The package is found and not imported. `importlib.metadata` would read the metadata of every package for it.
    """
    heading = f"[{ENTRY_POINTS}]".encode()
    for place in dict.fromkeys(sys.path):
        for listed in _installed(place or "."):
            if heading in (said := _entry_points(listed)):
                for name, package in _entries(said.decode("utf-8", "replace")):
                    yield Plugin(_folder(package), f"package {name}")


def _installed(place: str) -> list[str]:
    """Where the metadata of packages are, in order."""
    with suppress(OSError), os.scandir(place) as entries:
        return sorted(entry.path for entry in entries if entry.name.endswith("-info"))
    return []


def _entry_points(listed: str) -> bytes:
    """What the metadata of a package say; most have none. (There are hundreds: a `Path` for each takes as long.)"""
    with suppress(OSError), FileIO(f"{listed}/entry_points.txt") as stream:
        return stream.readall()
    return b""


def _entries(text: str) -> list[tuple[str, str]]:
    import configparser

    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return []
    return [(name, value.partition(":")[0].strip()) for name, value in parser.items(ENTRY_POINTS)]


def _folder(package: str) -> Path:
    try:
        spec = util.find_spec(package)
    except (ImportError, ValueError, AttributeError):
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0]) if places else Path("/nonexistent") / package


def _anyone_writes(folder: Path) -> bool:
    """Whether any user of the machine could put code there."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        return True
    return bool(mode & stat.S_IWOTH)


def use(folders: list[Path]) -> None:
    """Read these folders too, in this process and in those that it starts."""
    given = [str(folder.absolute()) for folder in folders]
    before = [text for text in os.environ.get(VARIABLE, "").split(os.pathsep) if text and text not in given]
    os.environ[VARIABLE] = os.pathsep.join([*given, *before])
    forget()


def forget() -> None:
    """Look again: the environment has changed."""
    from whichrank.facts import messages, taxonomy

    for function in (plugins, problems, _named, fixes):
        function.cache_clear()
    taxonomy.causes.cache_clear()
    messages.forget()


def table(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of a CSV file of a plug-in; `FactsError` where it is not what it must be."""
    try:
        with bounded(path).open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            lacking = [column for column in columns if column not in (reader.fieldnames or ())]
            if lacking:
                raise FactsError(f"{path.name}: the column {lacking[0]} is missing")
            found = [{key: (value or "").strip() for key, value in row.items() if key} for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FactsError(f"{path.name}: {error}") from error
    for number, row in enumerate(found, 2):
        if any(not row[column] for column in columns):
            raise FactsError(f"{path.name}:{number}: a field is empty")
    return found


def bounded(path: Path) -> Path:
    """The path, if it is a plain file of a sensible size."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
        raise FactsError(f"{path.name} is not a plain file of at most {_LARGEST >> 20} MiB")
    return path


def added_causes() -> Iterator[dict[str, str]]:
    """Rows of the plug-ins' causes; a table that can't be read is left out."""
    for plugin in plugins():
        path = plugin.folder / "causes.csv"
        if path.exists():
            try:
                yield from table(path, CAUSE_COLUMNS)
            except FactsError:
                continue  # `whichrank rules check` and the coverage tell


@cache
def fixes() -> dict[str, tuple[str, ...]]:
    """What to do first at this site, by cause."""
    found: dict[str, tuple[str, ...]] = {}
    for plugin in plugins():
        path = plugin.folder / "fixes.csv"
        if path.exists():
            try:
                for row in table(path, FIX_COLUMNS):
                    found[row["cause"]] = (*found.get(row["cause"], ()), row["fix"])
            except FactsError:
                continue
    return found
