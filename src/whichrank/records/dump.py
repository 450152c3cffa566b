"""One flight-recorder buffer of one process, as columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

SCHEDULED, STARTED, COMPLETED, OTHER_STATE = 0, 1, 2, 3
_MOST_RANKS = 1 << 20
STATES = {"scheduled": SCHEDULED, "started": STARTED, "completed": COMPLETED}


class Frame(Struct, frozen=True):
    """One Python (or C++) frame of the call that issued an operation."""

    function: str
    file: str
    line: int


class Call(Struct, frozen=True):
    """What many entries share: the operation, its arguments and the code that issued it."""

    op: str
    """Profiling name without the backend: "all_reduce", "send 0->1"."""
    backend: str
    """"nccl", "gloo", …; "" in dumps that don't say."""
    input_sizes: tuple[tuple[int, ...], ...]
    output_sizes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    stack: tuple[Frame, ...]
    """Innermost first; empty for operations of C++ threads (DDP buckets)."""
    thread: str
    p2p: bool
    timeout_ms: int | None
    root: int | None = None
    """Root within the group, and the reduction: NCCL's log has them, the flight recorder does not."""
    reduce: str | None = None


class LocalGroup(Struct, frozen=True):
    """A process group as this process names it."""

    pg_id: int
    """Process-local number; no join key."""
    name: str
    """"" where the dump has none (torch 2.2, 2.3)."""
    desc: str
    members: tuple[int, ...] | None
    """Global ranks by pg_config; None where it does not say (Gloo, old versions)."""


def ranks_of_spans(text: str) -> tuple[int, ...]:
    """`0-3,8` as `whichrank run` writes the members of a group; raises ValueError."""
    found: list[int] = []
    for span in filter(None, text.split(",")):
        first, _, last = span.partition("-")
        begin, end = int(first), int(last or first)
        if not 0 <= begin <= end < _MOST_RANKS or len(found) + end - begin > _MOST_RANKS:
            raise ValueError(f"no ranks: {span[:40]}")
        found.extend(range(begin, end + 1))
    return tuple(found)


class GroupMembers(Struct, frozen=True):
    """Who is in the groups of a rank, as the process itself says."""

    rank: int
    members: dict[str, tuple[int, ...]]
    """Global ranks by the name of the group."""


class GroupStatus(Struct, frozen=True):
    """pg_status: the newest sequence numbers; -1 means never. It lags behind the entries."""

    enqueued: int
    started: int
    completed: int


class Dump(Struct):
    """Columns have one row per entry, oldest first (ascending record_id)."""

    source: str
    rank: int | None
    """Global rank by the file name; None where it has no number."""
    version: tuple[int, int]
    """(0, 0) for the bare list of torch 2.2."""
    comm_lib: str
    groups: list[LocalGroup]
    """Every group that entries use, plus those that only pg_config names (pg_id -1)."""
    calls: list[Call]
    status: dict[int, GroupStatus]
    """By pg_id."""
    has_frames: bool
    """False when no entry carries the key `frames`: JSON, or the GIL was blocked."""
    host: str | None = None
    mtime_ns: int | None = None
    newest_ns: int = 0
    """Latest time anywhere in the dump, discovery times included: the dump is no older."""
    capacity_wrapped: bool = False
    """True when the oldest record_id is above 0: the ring has dropped entries."""
    left_out: int = 0
    """Entries that were read and are in no column: of very many ranks only what a verdict needs is kept."""

    record_id: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    group: npt.NDArray[np.int16] = field(default_factory=lambda: np.empty(0, np.int16))
    """Index into `groups`."""
    call: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """Index into `calls`."""
    seq: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """collective_seq_id (seq_id in old versions)."""
    p2p_seq: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    created_ns: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    completed_ns: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """When a CPU thread noticed the end; 0 for never."""
    duration_ms: npt.NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    """nan where the recorder had no timing."""
    state: npt.NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    retired: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))

    def __len__(self) -> int:
        return len(self.record_id)
