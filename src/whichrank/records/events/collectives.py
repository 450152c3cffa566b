"""Operations that do not fit together or that some ranks did not join, as torch, Horovod and `run` report them."""

from __future__ import annotations

from whichrank.records.events.base import Event

SENDS = frozenset({"send", "isend", "send_object_list"})
RECEIVES = frozenset({"recv", "irecv", "recv_object_list"})
MESSAGES = SENDS | RECEIVES | {"batch_isend_irecv"}
"""Functions of torch.distributed between two ranks."""


class CollectiveStack(Event, kw_only=True):
    """The frames (innermost first) of the collective that failed."""

    missing: bool = False
    """Whether torch had none."""


class DesyncReport(Event, kw_only=True):
    """One statement of the desync report."""

    what: str = ""
    """timeout_at, never_joined, not_joined or not_finished."""
    ranks: tuple[int, ...] = ()
    seq: int | None = None
    op: str = ""


class FingerprintMismatch(Event, kw_only=True):
    """TORCH_DISTRIBUTED_DEBUG=DETAIL: two ranks (of the group) run different collectives."""

    rank_a: int | None = None
    op_a: str = ""
    seq_a: int | None = None
    shape_a: str = ""
    dtype_a: str = ""
    rank_b: int | None = None
    op_b: str = ""
    seq_b: int | None = None
    shape_b: str = ""
    dtype_b: str = ""
    aspects: str = ""


class MonitoredBarrierFailed(Event, kw_only=True):
    """Ranks (of the group) did not come to a monitored barrier."""

    what: str = ""
    """missing: `ranks` are absent; rank0: rank 0 is."""
    ranks: tuple[int, ...] = ()
    ms: int | None = None

    @property
    def waited_ms(self) -> int:
        return self.ms or 0


class StallReport(Event, kw_only=True):
    """Horovod: ranks missing from every stalled tensor, from some of them; ranks ready with one."""

    missing: tuple[int, ...] = ()
    some: tuple[int, ...] = ()
    ready: tuple[int, ...] = ()
    apart: tuple[int, ...] = ()
    """The fewer ones, where there are two sides of which each brought what the other lacks."""


class StoodStill(Event, kw_only=True):
    """The main thread of a rank that is in no collective had been at one instruction when it was looked at."""

    seconds: float = 0.0
    place: str = ""


class Moved(Event, kw_only=True):
    """The main thread of a rank that is in no collective, and has issued none for long, goes from line to line."""


class OperationsCounted(Event, kw_only=True):
    """How many operations a rank had issued by its own count, and (as its time) when that last changed."""

    issued: int = 0


class InOperation(Event, kw_only=True):
    """Where a rank was when it was looked at."""

    op: str = ""
    word: str = ""
    """from or to, before the peer."""
    peer: int | None = None
    """A global rank."""
    ranks: tuple[int, ...] = ()
    """The members of the operation's group."""
    name: str = ""
    """The name of a group that is being made."""
    step: int | None = None
