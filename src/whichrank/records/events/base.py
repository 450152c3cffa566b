"""What all events share: where it was said, by which process, and when."""

from __future__ import annotations

from functools import cache

from msgspec import Struct

from whichrank.model.evidence import Ref
from whichrank.model.late_pattern import late
from whichrank.records.dump import Frame

_NOWHERE = Ref("", "", "")
_WORD = late(r"(?<!^)(?=[A-Z])")


@cache
def name_of(kind: type[Event]) -> str:
    """The name of a kind of events outside of the program: `watchdog_timeout`."""
    return _WORD.sub("_", kind.__name__).lower()


class Event(Struct, kw_only=True, omit_defaults=True):
    """One statement of a log. A reader makes it from the words of a line, then fills in who spoke it; nobody changes
    it after that. `rank` is GLOBAL; a rank inside a group is `group_rank`."""

    ref: Ref = _NOWHERE
    line: int = 0
    time_ns: int | None = None
    """The writer's wall clock, taken as UTC where the line has no zone. torch's own C++ prefix has a
    fraction that does not belong to its second (recorded: 22.397 before 22.042): good to a second."""
    after_ns: int | None = None
    """The newest time seen earlier in the same file, where the line has none."""
    rank: int | None = None
    group_rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    host: str | None = None
    task: int | None = None
    """By `srun --label`: a rank, or a host where a launcher runs on each."""
    place: str = ""
    """Among the processes of a server, by the groups that they form: `TP9`, `PP0_TP1`."""
    frames: tuple[Frame, ...] = ()

    @property
    def kind(self) -> str:
        return name_of(type(self))

    @property
    def about_ns(self) -> int | None:
        """Its time, or else the newest time before it in its file."""
        return self.time_ns if self.time_ns is not None else self.after_ns

    @property
    def waited_ms(self) -> int:
        """How long its process had waited by then, where it says so."""
        return 0

    @property
    def words(self) -> str:
        """All that it says, without its numbers."""
        return self.ref.quote


class Reasoned(Event, kw_only=True):
    """One that gives a reason."""

    reason: str = ""

    @property
    def words(self) -> str:
        return self.reason or self.ref.quote


class OfGroup(Event, kw_only=True):
    """One that names a process group, as far as this version of torch does."""

    pg_id: int | None = None
    pg_guid: str = ""
    pg_name: str = ""
    pg_desc: str = ""


class OfWork(OfGroup, kw_only=True):
    """One that tells of an operation of a group: `WorkNCCL(SeqNum=…, OpType=…)`."""

    seq: int | None = None
    op: str = ""
    numel_in: int | None = None
    numel_out: int | None = None
    timeout_ms: int | None = None
    ran_ms: int | None = None

    @property
    def waited_ms(self) -> int:
        return self.ran_ms or 0
