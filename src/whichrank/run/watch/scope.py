"""Whom a watcher judges: the ranks of this host, or of all nodes of the job (`run/nodes/all_nodes.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from whichrank.model.verdict import Diagnosis
from whichrank.run.watch.job_processes import Member

if TYPE_CHECKING:
    from whichrank.run.watch.watcher import Watcher

What = Literal["look", "full", "gather", "end"]
"""What other nodes are asked for: a quick look, a full capture, what the ended have left, to end the job."""


class Scope(Protocol):
    """What a watcher does for, and asks of, the other nodes."""

    @property
    def judges(self) -> bool:
        """Whether this watcher gives the verdict."""

    @property
    def told_verdict(self) -> bool:
        """Whether somebody else has given the verdict on this attempt."""

    def join(self, watcher: Watcher) -> None: ...

    def look(self, now_s: float, ranks: list[Member]) -> Sequence[Member]:
        """After a look at the ranks of this host: those to be weighed now."""

    def ranks_ended(self) -> None: ...

    def guard(self, folder: Path) -> Callable[[], list[Path]]:
        """Guards of this host write into this folder; gives the records of those on other hosts that are at hand."""

    def shows_each(self, ranks: Sequence[Member]) -> bool:
        """Whether each of these is one rank, and does not stand for many."""

    def ask(self, what: What, attempt: int | None = None) -> str:
        """Ask the others for something; the name of their answers."""

    def before_capture(self) -> None: ...

    def collect(self, token: str) -> None:
        """Wait for the answers, and put them beside the own evidence."""

    def before_verdict(self) -> None: ...

    def after_verdict(self, diagnosis: Diagnosis) -> None: ...

    def begin_attempt(self) -> None: ...

    def resumed(self) -> None: ...

    def ended(self, code: int) -> None:
        """The job has ended on this host."""

    def others_failed(self, code: int) -> bool:
        """Whether it ended badly elsewhere; after a good end here that is waited for."""

    def hand_over(self, code: int) -> None:
        """Where another judges: what this host leaves goes there."""

    def about(self) -> dict[str, Any]:
        """What run.json says of the nodes."""


class ThisHost:
    """There are no other nodes."""

    judges = True
    told_verdict = False

    def join(self, watcher: Watcher) -> None: ...

    def look(self, now_s: float, ranks: list[Member]) -> Sequence[Member]:  # noqa: ARG002 - others wait
        return ranks

    def ranks_ended(self) -> None: ...

    def guard(self, folder: Path) -> Callable[[], list[Path]]:  # noqa: ARG002 - nobody else needs them
        return list

    def shows_each(self, ranks: Sequence[Member]) -> bool:  # noqa: ARG002 - always
        return True

    def ask(self, what: What, attempt: int | None = None) -> str:  # noqa: ARG002 - nobody is there
        return ""

    def before_capture(self) -> None: ...

    def collect(self, token: str) -> None: ...

    def before_verdict(self) -> None: ...

    def after_verdict(self, diagnosis: Diagnosis) -> None: ...

    def begin_attempt(self) -> None: ...

    def resumed(self) -> None: ...

    def ended(self, code: int) -> None: ...

    def others_failed(self, code: int) -> bool:  # noqa: ARG002 - there are none
        return False

    def hand_over(self, code: int) -> None: ...

    def about(self) -> dict[str, Any]:
        return {}
