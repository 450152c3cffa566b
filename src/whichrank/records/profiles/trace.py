"""One process's profile: what ran on its device and on its host, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct, field

if TYPE_CHECKING:  # it takes longer to import than a profile of a few megabytes to read
    import numpy.typing as npt

Longs: TypeAlias = "npt.NDArray[np.int64]"
Ints: TypeAlias = "npt.NDArray[np.int32]"
Bytes: TypeAlias = "npt.NDArray[np.int8]"
Flags: TypeAlias = "npt.NDArray[np.bool_]"
Floats: TypeAlias = "npt.NDArray[np.float64]"

COMPUTE, COMMUNICATION, MEMORY, SYNC, MARK, OPERATOR, RUNTIME, PYTHON = range(8)
"""Kinds of spans. On a device: work of three kinds, waits between streams, annotations. On the host: annotations
(MARK), operators, calls of the driver, Python functions; host collectives (Gloo) are COMMUNICATION."""


def _longs() -> Longs:
    return np.empty(0, np.int64)


class Spans(Struct, eq=False):
    """Columns have one row per span, in order of their starts."""

    start: Longs = field(default_factory=_longs)
    """Nanoseconds on the process's own clock."""
    end: Longs = field(default_factory=_longs)
    name: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    """Index into the trace's names."""
    lane: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    """Index into the trace's lanes: a stream or a thread."""
    kind: Bytes = field(default_factory=lambda: np.empty(0, np.int8))
    link: Longs = field(default_factory=_longs)
    """What joins a launch and what it launched; -1 for nothing."""
    comm: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    """Index into the trace's collectives; -1 for none."""

    def __len__(self) -> int:
        return len(self.start)

    def where(self, rows: Flags | npt.NDArray[np.intp]) -> Spans:
        """These rows alone."""
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)  # once for all columns: numpy copies what flags choose piece by piece
        columns: tuple[Any, ...] = (self.start, self.end, self.name, self.lane, self.kind, self.link, self.comm)
        return Spans(*(column[rows] for column in columns))

    def of(self, *kinds: int) -> Spans:
        """The rows of these kinds."""
        wanted = self.kind == kinds[0]
        for kind in kinds[1:]:
            wanted |= self.kind == kind
        return self.where(wanted)


class Collective(NamedTuple):
    """What the profiler noted about a collective's arguments."""

    op: str
    """In torch's words: all_reduce, reduce_scatter, …; "" where nothing tells."""
    sent: int | None = None
    received: int | None = None
    """Bytes of this rank's input and output."""
    group: str = ""
    desc: str = ""
    size: int | None = None
    """How many ranks the group has."""
    ranks: tuple[int, ...] | None = None
    seq: int | None = None
    dtype: str = ""


class Filled(NamedTuple):
    """What one of DDP's buckets holds."""

    bytes: int
    parameters: tuple[str, ...]
    sizes: tuple[int, ...] = ()
    """Bytes of each parameter's gradient, where the profile tells."""


class Lane(NamedTuple):
    """A stream of a device or a thread of the host."""

    process: str
    thread: str
    device: bool
    numbered: bool = False
    """Whether its spans name the stream they ran on."""


class Trace(Struct, eq=False):
    """A profile of one process."""

    source: str
    device: Spans
    host: Spans
    names: list[str]
    lanes: list[Lane]
    collectives: list[Collective]
    rank: int | None = None
    world: int | None = None
    backend: str = ""
    host_name: str = ""
    accelerator: str = ""
    """The device's model, by the profile."""
    base_ns: int = 0
    """What to add to the spans' times to get the time of day, where the profile says."""
    events: int = 0
    reader: str = ""
    cut: str = ""
    """Why the profile is not whole, or nothing."""
    ends_early: bool = False
    """The file stops before its events do: kernels may be missing anywhere, since events are in no certain order."""
    profiler_steps: int = 0
    """How many different steps the profiler marked (`ProfilerStep#…`)."""
    step_s: tuple[float, float] | None = None
    """A typical step before the recording and while it ran, where `whichrank profile` took it."""
    ddp_buckets: tuple[Filled, ...] = ()
    """In the order in which they are reduced, where `whichrank profile` took it."""
    step_collectives: tuple[Collective, ...] = ()
    """Those of one step in order, with their sizes, by the same: its profiles of CPU jobs hold no shapes."""
    only_group: Collective | None = None
    """The process group of a job that has but one."""
    collectives_only: bool = False
    """Nothing but collectives was recorded: what the rank did between them is not known."""
    ends_known: bool = True
    """Whether the recording tells when collectives ended; otherwise clocks are taken as they are."""
