"""What NCCL's RAS answered: one report of the whole job, at one moment.

Counts are of operations launched, not completed, and differ for a moment in any healthy job. A report
as text lists ranks by name only where they are few: the listed minority is as often the one rank that
went ahead, or a victim, as the one that stayed behind. Nothing here says who is to blame.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

Trouble = Literal["INCOMPLETE", "DEAD", "ERROR", "TIMEOUT"]


class RasRank(Struct, frozen=True):
    """One rank of a communicator; what the report does not say is None."""

    rank: int
    host: str | None = None
    """Address of the bootstrap interface, not a host name."""
    pid: int | None = None
    cuda_dev: int | None = None
    init_state: int | None = None
    """ncclResult_t: 0 done, 7 in progress."""
    finalize_called: bool | None = None
    destroyed: bool | None = None
    aborted: bool | None = None
    counts: dict[str, int] | None = None
    """Operations launched, by collective; Send and Recv are not counted by NCCL."""
    missing: bool = False

    @property
    def status(self) -> str | None:
        """As RAS names it: INIT, RUNNING, FINALIZE, ABORT."""
        if self.init_state is None:
            return None
        if self.aborted:
            return "ABORT"
        if self.finalize_called or self.destroyed:
            return "FINALIZE"
        return "RUNNING" if self.init_state == 0 else "INIT"


class RasComm(Struct, frozen=True):
    """One communicator (reports as JSON list all, with all ranks)."""

    comm_id: str
    """16 hex digits: the commId of NCCL's logs."""
    size: int
    ranks: tuple[RasRank, ...]
    missing: tuple[RasRank, ...]


class RasGroup(Struct, frozen=True):
    """A row of the table of communicators (text)."""

    number: int
    comms: int
    status: str
    errors: tuple[str, ...]
    """Empty for OK."""
    line: int = 0
    size: int = 0
    """Ranks of each communicator."""


class RasValue(Struct, frozen=True):
    """Ranks that agree with each other; `listed` names those that the report names."""

    value: str
    ranks_count: int
    listed: tuple[RasRank, ...]


class RasMismatch(Struct, frozen=True):
    """Ranks of one communicator that differ in status or in the number of one collective."""

    comm_id: str
    topic: str
    """"status", the collective's name, or "collective" (2.24 and 2.25 count all together)."""
    values: tuple[RasValue, ...]
    line: int = 0

    @property
    def counts(self) -> tuple[int, ...] | None:
        """The operation counts, as numbers; None for a status."""
        return None if self.topic == "status" else tuple(int(item.value) for item in self.values)


class RasProblem(Struct, frozen=True):
    """A block of the Errors section, or a timeout of the collection."""

    kind: Trouble
    comm_id: str | None
    text: str
    count: int
    ranks: tuple[RasRank, ...] = ()
    processes: tuple[RasProcess, ...] = ()
    line: int = 0


class RasProcess(Struct, frozen=True):
    """A process by address."""

    host: str
    pid: int
    gpus: str


class RasJob(Struct, frozen=True):
    """The job summary (text)."""

    nodes: int
    processes: int
    gpus: int
    uniform: bool
    outlier_nodes: tuple[str, ...] = ()
    """Without pids: NCCL prints those of another node there (loop index in src/ras/client_support.cc)."""


class RasEvent(Struct, frozen=True):
    """One event of MONITOR (2.29 and later)."""

    name: str
    """PEER_DEAD, PEER_UNRESPONSIVE…"""
    time: str
    process: RasProcess | None
    text: str
    line: int = 0


class RasReport(Struct):
    """One answer to STATUS, or the events of one MONITOR."""

    source: str
    form: Literal["text", "json", "events"]
    time: str | None = None
    """Local time of the answering process; text reports have none."""
    job: RasJob | None = None
    groups: list[RasGroup] = field(default_factory=list)
    comms: list[RasComm] = field(default_factory=list)
    mismatches: list[RasMismatch] = field(default_factory=list)
    problems: list[RasProblem] = field(default_factory=list)
    events: list[RasEvent] = field(default_factory=list)
    diagnostics: list[str] = field(default_factory=list)
    """Lines of the RAS diagnostics of 2.31 and later."""
    no_data: bool = False
    """No communicator data collected: no communicator has come up yet."""
    complete: bool = True
    """False when the report breaks off."""


def mismatches_of(comm: RasComm) -> list[RasMismatch]:
    """The differences between the ranks of one communicator, every rank named."""
    topics: dict[str, dict[str, list[RasRank]]] = {}
    for rank in comm.ranks:
        if rank.status is not None:
            topics.setdefault("status", {}).setdefault(rank.status, []).append(rank)
        for name, count in (rank.counts or {}).items():
            topics.setdefault(name, {}).setdefault(str(count), []).append(rank)
    found = []
    for topic, values in topics.items():
        if len(values) > 1:
            # As RAS does: the most frequent value first.
            ordered = sorted(values.items(), key=lambda item: -len(item[1]))
            rows = tuple(RasValue(value, len(ranks), tuple(ranks)) for value, ranks in ordered)
            found.append(RasMismatch(comm.comm_id, topic, rows))
    return found
