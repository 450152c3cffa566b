"""Where verdicts of past jobs are kept: one small SQLite file of this user, bounded, and never a reason to fail."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from whichrank.model.errors import WhichrankError

if TYPE_CHECKING:
    import sqlite3

VARIABLE = "WHICHRANK_HISTORY"
"""A file to use instead, or "off"."""
MOST = 10_000
"""Verdicts that are kept: the oldest go first. About 1 KB each."""
LONGEST = 2000
BUSY_S = 3.0
VERSION = 1
_SHARED = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "afs", "fuse", "9p")
"""File systems on which SQLite's write-ahead log can't work: it needs memory that all its users share."""
_TABLE = """
CREATE TABLE IF NOT EXISTS verdicts (
    id TEXT PRIMARY KEY, time REAL NOT NULL, job TEXT NOT NULL, category TEXT NOT NULL, cause TEXT NOT NULL,
    confidence REAL NOT NULL, summary TEXT NOT NULL, out TEXT NOT NULL,
    ranks TEXT NOT NULL, hosts TEXT NOT NULL, gpus TEXT NOT NULL, code TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_time ON verdicts (time);
"""


class HistoryError(WhichrankError):
    """The history can't be read or written."""

    exit_code = 3


class Entry(Struct, frozen=True):
    """One verdict of one job."""

    id: str
    """The same for the same verdict of the same run: it is kept once."""
    time: float
    job: str
    category: str
    cause: str
    confidence: float
    summary: str
    out: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    """`host:index`, or the UUID where it is known."""
    code: tuple[str, ...] = ()
    """`file:line in function`."""


_COLUMNS = Entry.__struct_fields__
_LISTS = ("ranks", "hosts", "gpus", "code")


def place(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The file of this user; None where the history is switched off."""
    given = environ.get(VARIABLE, "")
    if given == "off":
        return None
    if given:
        return Path(given)
    state = environ.get("XDG_STATE_HOME", "")
    # The specification of these folders asks to ignore relative paths.
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "whichrank" / "history.db"


def add(file: Path, entry: Entry) -> None:
    """Keep an entry; a file that is broken is put aside and a new one begun."""
    sqlite3 = _engine()
    try:
        _add_in_turn(file, entry)
    except sqlite3.OperationalError as error:  # locked, full, read-only: nothing is wrong with what is in it
        raise HistoryError(f"can't write {file}: {error}") from error
    except (sqlite3.DatabaseError, UnicodeDecodeError):  # its own messages quote a broken file, decoded strictly
        with suppress(OSError):
            for end in ("-wal", "-shm"):
                file.with_name(file.name + end).unlink(missing_ok=True)
            file.replace(file.with_name(file.name + ".broken"))
        try:
            _add(file, entry)
        except (sqlite3.Error, OSError) as error:
            raise HistoryError(f"can't write {file}: {error}") from error
    except OSError as error:
        raise HistoryError(f"can't write {file}: {error.strerror}") from error


def read(file: Path, *, since: float = 0.0) -> list[Entry]:
    """The entries from this time on, the newest first; none where there is no file."""
    sqlite3 = _engine()
    if not file.exists():
        return []
    try:
        with _opened(file) as base:
            rows = base.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM verdicts WHERE time >= ? ORDER BY time DESC LIMIT {MOST}",  # noqa: S608
                (since,),
            )
            return [entry for row in rows if (entry := _entry(row)) is not None]
    except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
        raise HistoryError(
            f"can't read the history in {file}: {error}", "Move the file away: a new one begins by itself."
        ) from error


def _engine() -> Any:
    try:
        import sqlite3
    except ImportError as error:
        raise HistoryError("this Python was built without sqlite3: there is no history") from error
    return sqlite3


def _add_in_turn(file: Path, entry: Entry) -> None:
    """SQLite waits for others by itself, but not while one of them changes the mode of the journal."""
    until = time.monotonic() + 2 * BUSY_S
    while True:
        try:
            return _add(file, entry)
        except _engine().OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)


def _add(file: Path, entry: Entry) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise HistoryError(f"{file} belongs to another user", f"Set {VARIABLE} to a file of your own.")
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    row = [_cell(name, getattr(entry, name)) for name in _COLUMNS]
    with _opened(file) as base:
        base.execute(f"PRAGMA journal_mode = {'DELETE' if _is_shared(file.parent) else 'WAL'}")
        base.executescript(_TABLE)
        with base:
            marks = ", ".join("?" for _ in row)
            base.execute(f"INSERT OR REPLACE INTO verdicts ({', '.join(_COLUMNS)}) VALUES ({marks})", row)  # noqa: S608
            base.execute(
                f"DELETE FROM verdicts WHERE id NOT IN (SELECT id FROM verdicts ORDER BY time DESC LIMIT {MOST})"  # noqa: S608
            )
            base.execute(f"PRAGMA user_version = {VERSION}")


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(_engine().connect(file, timeout=BUSY_S)) as base:
        written = base.execute("PRAGMA user_version").fetchone()[0]
        if written > VERSION:
            raise HistoryError(f"{file} was written by a newer whichrank", "Use that one, or move the file away.")
        yield base


def _cell(name: str, value: Any) -> str | float:
    if name in _LISTS:
        return json.dumps([_text(v) if isinstance(v, str) else int(v) for v in value[:64]])
    return _text(value) if isinstance(value, str) else float(value)


def _text(value: str) -> str:
    return value[:LONGEST].encode("utf-8", "backslashreplace").decode("utf-8")


def _entry(row: tuple[Any, ...]) -> Entry | None:
    """A row as an entry; None for one that somebody else has written."""
    name, moment, job, category, cause, sure, summary, out, *lists = row
    try:
        ranks, hosts, gpus, code = (json.loads(text) for text in lists)
        return Entry(
            str(name), float(moment), str(job), str(category), str(cause), float(sure), str(summary), str(out),
            tuple(map(int, ranks)), tuple(map(str, hosts)), tuple(map(str, gpus)), tuple(map(str, code)),
        )  # fmt: skip
    except (TypeError, ValueError, RecursionError):
        return None


def _is_shared(folder: Path) -> bool:
    """Whether other hosts may use the same files, by the table of mounts."""
    best, kind = "", ""
    with suppress(OSError):
        target = str(folder.resolve())
        for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
            words = line.split()
            if len(words) < 3:
                continue
            mount = words[1].replace("\\040", " ")
            inside = target == mount or target.startswith(mount.rstrip("/") + "/")
            if inside and len(mount) >= len(best):
                best, kind = mount, words[2]
    return kind.startswith(_SHARED)
