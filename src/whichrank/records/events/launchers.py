"""What launchers, schedulers and watchers saw of processes and nodes."""

from __future__ import annotations

from whichrank.records.events.base import Event, Reasoned


class ElasticFailure(Event, kw_only=True):
    """A row of the elastic agent's table."""

    exitcode: int | None = None
    signal: int | None = None
    error_file: str = ""
    message: str = ""
    root: bool = False
    """First SEEN dead, no verdict."""

    @property
    def words(self) -> str:
        return self.message or self.ref.quote


class ElasticSignal(Event, kw_only=True):
    """The elastic agent sends or receives a signal."""

    what: str = ""
    """closing (it ends target_pid), death (it was told to end), got or forced."""
    target_pid: int | None = None
    signal: str = ""
    signal_number: int | None = None


class ElasticRestart(Event, kw_only=True):
    """The worker group starts again."""

    attempts_left: int | None = None


class ProcessLeft(Event, kw_only=True):
    """A rank ended without a failure, while the job ran."""


class LauncherEnded(Event, kw_only=True):
    """A launcher was ended by a signal."""

    signal: int | None = None


class ProcessExit(Reasoned, kw_only=True):
    """A launcher saw a process end."""

    by: str = ""
    exitcode: int | None = None
    signal: int | None = None
    tasks: tuple[int, ...] = ()
    waiting: bool = False
    """Whether it was waiting for others."""
    how: str = ""


class ActorDied(Event, kw_only=True):
    """Ray describes an actor that died: its pid and host are those of the event."""

    name: str = ""


class JobEnded(Reasoned, kw_only=True):
    """The scheduler, or somebody else, ended the job."""

    by: str = ""
    signal: str = ""
    teller: str = ""
    """The host of the job that tells it: all of them end."""


class SchedulerJob(Event, kw_only=True):
    """Which job of a scheduler this is."""

    scheduler: str = ""
    """slurm, pbs, …"""
    job: str = ""
    name: str = ""
    step: str = ""
    node: str = ""
    nodes: tuple[str, ...] = ()
    restarts: int = 0
    ends: str = ""


class NodeSilent(Event, kw_only=True):
    """A watcher heard nothing of a whole node any more."""

    how: str = ""
    """no answer, or not renewed."""
    ranks: tuple[int, ...] = ()


class HostOutOfMemory(Reasoned, kw_only=True):
    """A scheduler saw the kernel's out-of-memory killer."""

    by: str = ""
