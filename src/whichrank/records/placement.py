"""Where a rank runs, as somebody wrote it down."""

from __future__ import annotations

from msgspec import Struct, field

from whichrank.model.evidence import Ref


class Placement(Struct, frozen=True):
    """One row of a list of ranks: its process, host and GPU, as far as the list says."""

    rank: int
    ref: Ref
    pid: int | None = None
    host: str | None = None
    local_rank: int | None = None
    gpu: int | None = None
    bus_id: str | None = None


class Layout(Struct, frozen=True):
    """How a launch spreads the ranks over the hosts, as far as one text says; 0 and empty where it does not."""

    ref: Ref
    hosts: tuple[str, ...] = ()
    """In the order of the scheduler, which numbers them."""
    numbered: dict[str, int] = field(default_factory=dict)
    """Hosts that say which node they are."""
    per_host: int = 0
    nodes: int = 0
    world: int = 0
    by_scheduler: bool = False
    """The launcher takes the scheduler's number of the host, or the tasks of the scheduler are the ranks."""
    one_task: bool = False
    """The scheduler starts a launcher on each host: its tasks are hosts."""
    store: str = ""
    """The host or address at which the ranks meet."""
    visible: int = 0
    """GPUs that the launch lets the processes of a host see."""
