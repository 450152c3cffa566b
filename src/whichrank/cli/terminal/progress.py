"""A line of progress on stderr, for people only and only when the work takes a while."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_S = 0.5


class ProgressLine:
    """Called with (stage, done, total); draws nothing unless stderr is a terminal.

    It is drawn from the caller's thread: a refreshing thread would be copied half-way by fork.
    """

    def __init__(self, *, quiet: bool) -> None:
        self.enabled = not quiet and sys.stderr.isatty()
        self.started = time.monotonic()
        self.drawn = 0.0
        self.bar: Progress | None = None
        self.tasks: dict[str, TaskID] = {}

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if not self.enabled or now - self.started < PATIENCE_S:
            return
        if now - self.drawn < 0.1 and done < total:
            return
        self.drawn = now
        self._draw(stage, done, total)

    def _draw(self, stage: str, done: int, total: int) -> None:
        if self.bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self.bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
            self.bar.start()
        if stage not in self.tasks:
            self.tasks[stage] = self.bar.add_task(stage, total=total)
        self.bar.update(self.tasks[stage], completed=done, total=total, refresh=True)
