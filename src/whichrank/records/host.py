"""What a host says of its limits, file systems, memory and processes at one moment."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from whichrank.model.evidence import Ref

UNLIMITED = -1


class HostClock(Struct, frozen=True):
    """How far the clock of a host was ahead of another's, by messages that went there and back."""

    ref: Ref
    host: str
    ahead_ns: int
    error_ns: int


class HostName(Struct, frozen=True):
    """A line of `getent hosts` or /etc/hosts: an address and what it is called."""

    ref: Ref
    address: str
    names: tuple[str, ...]


class PodPlace(Struct, frozen=True):
    """A pod and the node that it runs on."""

    ref: Ref
    pod: str
    node: str


class HostSection(Struct, frozen=True):
    """From this line on a text is of one host, or of one rank, by a heading or a command that somebody typed; None: of
    none, or of which one nobody says."""

    ref: Ref
    line: int
    host: str | None = None
    sure: bool = True
    """Whether the line can only mean a host; else other evidence, or its likes in the text, must confirm the name."""
    rank: int | None = None
    local_rank: int | None = None


class HostVersions(Struct, frozen=True):
    """What a host, or a rank on it, says that it runs: `nccl`, `torch`, `driver` -> version."""

    ref: Ref
    line: int
    versions: dict[str, str]
    host: str | None = None


class TimeService(Struct, frozen=True):
    """What the time service of a host says of its clock."""

    ref: Ref
    host: str | None = None
    wrong_s: float | None = None
    """How far the clock is, or was, from the right time."""
    held: bool | None = None
    """Whether a source keeps it right."""


class FileSystem(Struct, frozen=True):
    """A row of df."""

    path: str
    device: str = ""
    size: int | None = None
    """Bytes (to the precision that df printed), or inodes."""
    free: int | None = None
    used_percent: int | None = None
    inodes: bool = False
    line: int = 0


class HostProcess(Struct, frozen=True):
    """A row of ps, or a process's status file."""

    pid: int
    state: str
    """The first letter: R, S, D (uninterruptible), T or t (stopped), Z."""
    command: str = ""
    parent: int | None = None
    waits_in: str = ""
    """The kernel function it sleeps in, where it is shown."""
    line: int = 0


class HostState(Struct, frozen=True):
    """One file, or one part of it, about a host or one of its processes."""

    ref: Ref
    host: str | None = None
    pid: int | None = None
    """Of the process whose limits these are."""
    limits: dict[str, int] = field(default_factory=dict)
    """`memlock` (bytes), `nofile`, `nproc`, `stack` (bytes), `core` …; -1 is unlimited."""
    file_systems: tuple[FileSystem, ...] = ()
    memory: dict[str, int] = field(default_factory=dict)
    """Bytes, by the names of /proc/meminfo."""
    processes: tuple[HostProcess, ...] = ()
    cgroup: dict[str, int] = field(default_factory=dict)
    """`oom_kill`, `nr_throttled`, `nr_periods`, `throttled_usec` …: counted since the group was made."""
    mounts: dict[str, str] = field(default_factory=dict)
    """Path -> type of the file system and its options."""
    places: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Key of a limit, a counter or a memory value -> line and words."""

    def cite(self, key: str) -> Ref:
        """Where a value stands."""
        line, words = self.places.get(key, (0, ""))
        return replace(self.ref, locator=f"line {line}", quote=words) if line else self.ref
