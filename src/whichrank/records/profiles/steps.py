"""One rank's profile, reduced: its steps, its collectives and what it did between them."""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from whichrank.records.profiles.trace import Bytes, Collective, Filled, Ints, Longs

LOADER, CHECKPOINT, COLLECTOR, SYNCHRONISING, HOST, OTHER = range(6)
"""Why a device stands idle: waiting for data, a checkpoint, Python's garbage collector, a call that waits for the
device, the host's operators, something that the profile does not show."""
IDLE_REASONS = ("data_loader", "checkpoint", "garbage_collector", "synchronisation", "host", "other")
WORKING = len(IDLE_REASONS)
"""Besides the reasons for idleness: work was running."""

ARRIVE, WAIT = 0, 1


def _longs() -> Longs:
    return np.empty(0, np.int64)


class Links(Struct, eq=False):
    """The chain of one rank: what it does in order. Between two links it is on its own."""

    kind: Bytes = field(default_factory=lambda: np.empty(0, np.int8))
    """ARRIVE: ready for a collective. WAIT: goes on only when the collective has ended."""
    call: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    """Index into the calls."""
    at: Longs = field(default_factory=_longs)
    """When; for WAIT the end of the wait."""
    own: Longs = field(default_factory=_longs)
    """Time of its own since the link before (or since the beginning)."""
    spent: Longs = field(default_factory=lambda: np.empty((0, WORKING + 1), np.int64))
    """The same by what it was spent on: the reasons for idleness, and work."""
    top: Ints = field(default_factory=lambda: np.empty((0, 4), np.int32))
    """What took most of it: indices into the names; -1 for nothing."""
    top_ns: Longs = field(default_factory=lambda: np.empty((0, 4), np.int64))

    def __len__(self) -> int:
        return len(self.kind)


class Calls(Struct, eq=False):
    """Collectives of one rank in order of their starts."""

    start: Longs = field(default_factory=_longs)
    """When this rank was ready for it."""
    end: Longs = field(default_factory=_longs)
    what: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    """Index into `collectives`."""
    name: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    lane: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    step: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    """Index of the step; -1 outside of all."""

    def __len__(self) -> int:
        return len(self.start)


class Map(Struct, eq=False):
    """What was going on, for drawing: moments at which it changes, and into what."""

    at: Longs = field(default_factory=_longs)
    state: Bytes = field(default_factory=lambda: np.empty(0, np.int8))


COMPUTES, OVERLAPS, EXPOSED, MOVES, IDLES = range(5)
"""States of the map; idle ones carry their reason: IDLES + reason."""


class RankSteps(Struct, eq=False):
    """All that is kept of one profile; columns of steps have one row per step."""

    source: str
    reader: str
    rank: int | None
    world: int | None
    backend: str
    host_name: str
    accelerator: str
    base_ns: int
    events: int
    on_device: bool
    """Whether the work is that of a device; otherwise of the host's operators."""
    cut: str
    marked: bool
    """Whether the profile says where steps begin and end."""
    ids: Longs
    start: Longs
    end: Longs
    compute: Longs
    communication: Longs
    exposed: Longs
    memory: Longs
    idle: Longs
    """One column per reason."""
    hta: tuple[float | None, float | None, float | None]
    """Compute, idle and overlap by HTA's rule."""
    calls: Calls
    collectives: list[Collective]
    links: Links
    tail: Longs
    """What the rank did after its last link, as `Links.spent`."""
    finish: int
    """When its last step ended."""
    names: list[str]
    map: Map
    signs: dict[str, float] = field(default_factory=dict)
    """Counts that tell of settings, by name; see `timeline/steps/signs.py`."""
    collectives_only: bool = False
    ends_known: bool = True
    ends_early: bool = False
    ddp_buckets: tuple[Filled, ...] = ()
    """All four as in the trace."""
    gradients: Longs = field(default_factory=_longs)
    """When autograd had accumulated each gradient, in order; empty where the work is a device's."""

    @property
    def span(self) -> int:
        return int((self.end - self.start).sum())
