"""What a watch writes down: run.json, the history, where evidence goes. A full disk is told once, and stops nothing."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whichrank.model.files import replace_text
from whichrank.run.watch.job_processes import Member
from whichrank.run.watch.samples import History

ROOM = 32 << 20
"""Bytes that evidence should find free: dumps and stacks of a host's ranks, with a margin."""


@dataclass(slots=True)
class Journal:
    """The folder of results."""

    out: Path
    tell: Callable[[str], None]
    elsewhere: Path | None = None
    """Where evidence goes that finds no room in the folder."""
    _told: set[str] = field(default_factory=set)
    past: History = field(init=False)

    def __post_init__(self) -> None:
        self.past = History(self.out)

    def write(self, name: str, text: str) -> bool:
        """One file, whole or not at all."""
        for folder in (self.out, self.elsewhere):
            if folder is None:
                continue
            try:
                replace_text(folder / name, text, mode=0o600)
            except OSError as error:
                self.complain(f"can't write {folder / name}: {error.strerror}; the job goes on")
                continue
            return True
        return False

    def save(self, document: dict[str, Any]) -> None:
        self.write("run.json", json.dumps({"schema_version": 1, **document}, indent=2) + "\n")

    def evidence(self) -> Path:
        """The folder for evidence: the one that was asked for, or another where that is full."""
        if self.elsewhere is None and _free(self.out) < ROOM:
            other = Path(tempfile.mkdtemp(prefix="whichrank-evidence-"))
            if _free(other) > max(ROOM, _free(self.out)):
                self.elsewhere = other
                self.complain(f"there is no room left in {self.out}: the evidence goes to {other}")
            else:
                other.rmdir()
                self.complain(f"there is hardly any room left in {self.out}: evidence may be missing")
        return self.elsewhere or self.out

    def history(self, now_s: float, ranks: Sequence[Member]) -> None:
        """One short line per rank and interval, so that the time before the trouble is known too."""
        try:
            self.past.look(now_s, ranks)
        except OSError as error:
            self.complain(f"can't write the history of the job: {error.strerror}; the job goes on")

    def complain(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.tell(text)


def _free(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0
