"""What processes say when they fail: exceptions, CUDA, DDP, crashes, workers that load data."""

from __future__ import annotations

from whichrank.records.events.base import Event, Reasoned


class Traceback(Event, kw_only=True):
    """An exception of Python, with its frames."""

    type: str = ""
    message: str = ""
    thread: str = ""
    ignored: bool = False
    logged: bool = False
    """A logger wrote it, below a warning or an error of its own: it was caught, at least once."""
    truncated: bool = False
    headless: bool = False
    chained_from: str = ""
    of_another: bool = False
    """Another rank printed it."""
    attempt: int | None = None

    @property
    def words(self) -> str:
        return "\n".join(filter(None, (self.type, self.message))) or self.ref.quote

    @property
    def short_type(self) -> str:
        """The class of the exception without its package."""
        return self.type.rsplit(".", 1)[-1]


class DdpError(Event, kw_only=True):
    """DistributedDataParallel refuses to go on."""

    what: str = ""
    """unused, unused_indices, unused_names, marked_twice, param_shape or param_count."""
    indices: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    index: int | None = None
    name: str = ""
    sizes: str = ""
    ranks: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()


class CudaError(Reasoned, kw_only=True):
    """A GPU, its driver or a library of CUDA failed."""

    what: str = ""
    """out_of_memory, device_assert, assert_line, illegal_access, ecc, …"""
    tried_bytes: int | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    allocated_bytes: int | None = None
    gpu: int | None = None
    file: str = ""
    at: int | None = None
    """The line of that file."""


class NativeCrash(Reasoned, kw_only=True):
    """A process crashed outside of Python."""

    what: str = ""
    signal: int | None = None


class DataloaderWorkerDied(Reasoned, kw_only=True):
    """A process that loads data died."""

    worker_pids: tuple[int, ...] = ()
    signal: int | None = None
    exitcode: int | None = None
