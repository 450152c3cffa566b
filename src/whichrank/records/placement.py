"""Where a rank runs, as somebody wrote it down."""

from __future__ import annotations

from msgspec import Struct

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
