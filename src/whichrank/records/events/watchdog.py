"""The NCCL watchdog, its heartbeat monitor, and the dumps of the flight recorder."""

from __future__ import annotations

from whichrank.records.events.base import Event, OfGroup, OfWork, Reasoned


class WatchdogTimeout(OfWork, kw_only=True):
    """This rank WAITED in an operation until it timed out."""


class WatchdogProgress(OfGroup, kw_only=True):
    """The group's counters on this rank: the operation that failed, and the last ones."""

    work: int | None = None
    enqueued: int | None = None
    started: int | None = None
    completed: int | None = None


class WatchdogTerminated(OfGroup, kw_only=True):
    """The watchdog takes the process down."""

    reason: str = ""

    @property
    def words(self) -> str:
        return self.reason or self.ref.quote


class WatchdogStuck(OfGroup, kw_only=True):
    """The watchdog itself made no progress."""

    seconds: int | None = None


class GilHeld(Event, kw_only=True):
    """A thread holds the interpreter lock."""

    ms: int | None = None

    @property
    def waited_ms(self) -> int:
        return self.ms or 0


class DumpSignal(OfGroup, kw_only=True):
    """A dump of the recorder was asked for."""

    own: bool = False
    """Whether by this rank."""
    from_rank: int | None = None
    enqueued: int | None = None
    started: int | None = None
    completed: int | None = None


class DumpStarted(OfGroup, kw_only=True):
    """The recorder begins to write."""

    path: str = ""


class DumpWritten(OfGroup, kw_only=True):
    """The recorder wrote its dump."""

    path: str = ""


class DumpFailed(Reasoned, kw_only=True):
    """The recorder could not write."""

    path: str = ""
