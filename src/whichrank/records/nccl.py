"""What NCCL logs say: processes, communicators, warnings, and the calls as columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

Phase = Literal["start", "complete"]
Ending = Literal["destroy", "abort", "revoke"]
Level = Literal["WARN", "ATTN", "DIAG", "INFO"]

# ncclDataType_t and ncclRedOp_t by number; 10 and 11 since 2.24, avg since 2.10, 5 and up are user-made.
DATATYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
             "bfloat16", "float8e4m3", "float8e5m2")  # fmt: skip
OPS = ("sum", "prod", "max", "min", "avg")

UNKNOWN = -1
"""In columns: the line was cut before this field."""


class CommInit(Struct, frozen=True):
    """One `Init START` or `Init COMPLETE` line."""

    api: str
    """"ncclCommInitRankConfig", "ncclCommSplit"…; "" where the version does not print it."""
    comm: str
    """Pointer as printed, valid in this process only."""
    comm_id: str | None
    """The hash all members share (16 hex digits, no 0x); None before 2.16 and for splits of 2.23 to 2.30."""
    rank: int
    """Rank within this communicator."""
    nranks: int
    phase: Phase
    line: int
    cuda_dev: int | None = None
    nvml_dev: int | None = None
    bus_id: str | None = None
    parent: str | None = None
    color: int | None = None
    key: int | None = None
    child: int | None = None
    """splitCount or childCount: the number of this split of its parent."""
    time: str | None = None


class CommEnd(Struct, frozen=True):
    """A communicator destroyed, aborted or revoked."""

    comm: str
    rank: int
    nranks: int
    kind: Ending
    phase: Phase
    line: int
    time: str | None = None


class NodeMap(Struct, frozen=True):
    """How a communicator lies over the hosts (2.20 and later)."""

    comm: str
    rank: int
    nranks: int
    nodes: int
    local_ranks: int
    local_rank: int
    line: int


class NcclWarning(Struct, frozen=True):
    """A WARN, ATTN or DIAG line, or an INFO line that tells of trouble."""

    level: Level
    text: str
    file: str | None
    function: str | None
    time: str | None
    line: int
    thread: int | None = None


class ErrorTrail(Struct, frozen=True):
    """One `file.cc:line -> code` line; code is an ncclResult_t (2 system, 3 internal, 5 usage, 6 remote…)."""

    place: str
    code: int
    note: str
    line: int


class InvalidValue(Struct, frozen=True):
    """`Invalid value V for NCCL_X, using default D.`"""

    name: str
    value: str
    default: str
    line: int


class Transport(Struct, frozen=True):
    """How two ranks of a communicator are connected, and over how many channels."""

    src: int
    dst: int
    kind: str
    """"P2P/IPC", "P2P/CUMEM", "SHM", "NET/IB", "NET/Socket", "NET/<plugin>"…"""
    gdr: bool
    direction: str
    """"send", "receive", or "" for connections within a host."""
    channels: int
    line: int


class RasPeer(Struct, frozen=True):
    """`RAS peer N: socket ip<port>, pid P, GPU g`: another process of the job, by address."""

    number: int
    address: str
    pid: int
    gpu: str
    own: bool
    line: int


class NcclProcess(Struct):
    """All that one process (host and pid) printed, except its calls."""

    source: str
    host: str | None
    """None for lines that were pasted without their prefix."""
    pid: int | None
    version: str | None = None
    cuda_dev: int | None = None
    """Device in the newest line prefix: after CUDA_VISIBLE_DEVICES, and never the rank."""
    network: str | None = None
    bootstrap_interface: str | None = None
    bootstrap_address: str | None = None
    ib_devices: tuple[str, ...] = ()
    no_ib_device: bool = False
    inits: list[CommInit] = field(default_factory=list)
    ends: list[CommEnd] = field(default_factory=list)
    nodes: list[NodeMap] = field(default_factory=list)
    warnings: list[NcclWarning] = field(default_factory=list)
    warnings_total: int = 0
    notes: list[NcclWarning] = field(default_factory=list)
    """INFO lines that tell of trouble: retried connections, closed sockets, RAS declaring peers dead."""
    trails: list[ErrorTrail] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    invalid: list[InvalidValue] = field(default_factory=list)
    transports: list[Transport] = field(default_factory=list)
    transport_counts: Counter[str] = field(default_factory=Counter)
    """Channel lines by kind, with "GDRDMA" counted beside."""
    ras_peers: list[RasPeer] = field(default_factory=list)
    launcher: str = ""
    """What stood before the host in its first line: "[1,13]<stderr>:", "[default3]:", "13: ", a time…"""
    stated_rank: int | None = None
    """The rank by that prefix; where one launcher's task runs several processes it is the task's number."""
    first_line: int = 0
    last_line: int = 0
    last_text: str = ""
    """The newest line that was not a call."""
    unplaced_calls: int = 0
    """Calls whose communicator could not be read (cut or interleaved lines)."""

    @property
    def label(self) -> str:
        return f"{self.host or '?'}:{'?' if self.pid is None else self.pid}"


# Field order is the same from 2.7 to 2.32. Each group is optional from its left neighbour on,
# so that a cut line still gives what stands before the cut.
_COUNTED = (
    rb"(\w{1,40}): opCount ([0-9a-f]{1,16})"
    rb"(?: sendbuff \S{1,20} recvbuff \S{1,20} count (\d{1,20} datatype \d{1,4} op \d{1,10} root -?\d{1,10})"
)
CALL = re.compile(
    _COUNTED + rb"(?: comm (0x[0-9a-f]{1,16}) \[nranks=(\d{1,9})\](?: stream (\(nil\)|0x[0-9a-f]{1,16}))?)?)?"
)
_SHORT = re.compile(_COUNTED + rb")?")
_PREFIXED = re.compile(rb" NCCL INFO " + _COUNTED + rb")?[^\n]*")


class CallColumns(Struct, frozen=True):
    """Calls of one communicator in one process, oldest first."""

    number: npt.NDArray[np.int64]
    """0 for the communicator's first call."""
    line: npt.NDArray[np.int64]
    func: npt.NDArray[np.int32]
    """Index into `functions`."""
    functions: tuple[str, ...]
    count: npt.NDArray[np.int64]
    """Elements, not bytes."""
    datatype: npt.NDArray[np.int16]
    op: npt.NDArray[np.int64]
    root: npt.NDArray[np.int64]
    """The peer for Send and Recv."""
    op_count: npt.NDArray[np.uint64]
    """Launch counter as printed: no call counter, and constant on NVLink-only communicators since 2.27.3."""

    def __len__(self) -> int:
        return len(self.number)


class KeptLines(Struct, frozen=True):
    """Some lines of a file, with their numbers."""

    text: bytes
    """The lines, and what stands between near ones."""
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    """From 1."""

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, position: int) -> bytes:
        return self.text[int(self.starts[position]) : int(self.ends[position])]

    def __iter__(self) -> Iterator[bytes]:
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            yield self.text[start:end]


class CommCalls(Struct, dict=True):
    """The calls on one communicator of one process: the exact number, and the last ones in detail."""

    process: NcclProcess
    comm: str
    generation: int
    """0, or more when the process made a new communicator at the same address."""
    comm_id: str | None
    rank: int | None
    nranks: int | None
    total: int
    kept: KeptLines
    """The lines of the last calls; of all calls when `complete`."""

    @property
    def complete(self) -> bool:
        """Whether every call is kept in detail."""
        return len(self.kept) == self.total

    @cached_property
    def calls(self) -> CallColumns:
        """The kept calls as columns, decoded when first asked for."""
        return _decode(self.kept, self.total)

    def last(self, count: int) -> CallColumns:
        """The newest of the kept calls as columns, without decoding the rest."""
        kept = self.kept
        newest = KeptLines(kept.text, kept.starts[-count:], kept.ends[-count:], kept.numbers[-count:])
        return _decode(newest, self.total)

    def quote(self, position: int) -> str:
        """The line of the kept call at this position (negative: from the end)."""
        return self.kept[position].decode("utf-8", "replace")


_LARGEST = 2**63 - 1
_Fields = tuple[bytes, bytes, bytes]
"""Function and counter of a call, and elements, type, operation and root as printed; b"" where the line is cut."""


def _decode(kept: KeptLines, total: int) -> CallColumns:
    fields = _fields(kept)
    functions: dict[bytes, int] = {}
    known: dict[tuple[bytes, bytes], int] = {}
    which = np.array([known.setdefault((func, said), len(known)) for func, _, said in fields], np.intp)
    rows = [(functions.setdefault(func, len(functions)), *_numbers(said)) for func, said in known]
    columns = np.array(rows, np.int64).reshape(-1, 5)[which]
    return CallColumns(
        number=np.arange(total - len(kept), total, dtype=np.int64),
        line=kept.numbers,
        func=columns[:, 0].astype(np.int32),
        functions=tuple(name.decode("ascii", "replace") for name in functions),
        count=columns[:, 1],
        datatype=columns[:, 2].astype(np.int16),
        op=columns[:, 3],
        root=columns[:, 4],
        op_count=np.array([int(counter, 16) for _, counter, _ in fields], np.uint64),
    )


def _numbers(said: bytes) -> tuple[int, int, int, int]:
    if not said:
        return UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN
    count, _, datatype, _, op, _, root = said.split()
    return min(int(count), _LARGEST), int(datatype), int(op), int(root)


def _fields(kept: KeptLines) -> list[_Fields]:
    lines = list(kept)
    text = b"\n".join(lines)
    # Nearly always each line has one call, behind NCCL's prefix: one search finds them all.
    if text.count(b": opCount ") == len(lines):
        found: list[_Fields] = _PREFIXED.findall(text)
        if len(found) == len(lines):
            return found
    return [_fields_of(line) for line in lines]


def _fields_of(line: bytes) -> _Fields:
    # The name stands behind a space nearly always: there the pattern fits at once.
    found = _SHORT.match(line, line.rfind(b" ", 0, max(0, line.find(b": opCount "))) + 1) or _SHORT.search(line)
    return (found[1], found[2], found[3] or b"") if found else (b"", b"0", b"")


class NcclLog(Struct):
    """What one text file holds of NCCL; the file may hold other output too."""

    source: str
    processes: list[NcclProcess] = field(default_factory=list)
    calls: list[CommCalls] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    """Every version that any line names, in order of appearance."""
    lines: int = 0
    nccl_lines: int = 0
    cut_end: bool = False
    """The last line has no end: the writer stopped, or the copy did, in the middle of it."""
