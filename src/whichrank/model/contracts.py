"""The contracts that discovered files keep: readers, rules, report formats and faults.

A file in `evidence/readers`, `rules/<family>`, `report` or `lab/faults` is a module that has the
attributes below. Nothing is registered anywhere: the folders are walked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from msgspec import Struct, field

from whichrank.model.evidence import Quality
from whichrank.model.findings import Finding, NotEvaluated

if TYPE_CHECKING:
    from whichrank.model.verdict import Diagnosis


class Item(Struct, frozen=True):
    """One file of evidence: where its bytes are, and what it is called in reports."""

    path: Path
    label: str
    size: int
    mtime_ns: int
    job: str = ""
    """Of a file that holds several jobs: which of them this part is about."""
    kept: bytes | None = None
    """Of a file that was reduced: what its summary has of the text, each line at its place. The path is the summary."""

    def head(self, count: int = 4096) -> bytes:
        if self.kept is not None:
            return self.kept[:count]
        if self.is_small:
            return _whole(self.path, self.size, self.mtime_ns)[:count]
        if count <= _HEAD:
            return _head(self.path, self.size, self.mtime_ns)[:count]
        with self.path.open("rb") as stream:
            return stream.read(count)

    def read(self) -> bytes:
        if self.kept is not None:
            return self.kept
        return _whole(self.path, self.size, self.mtime_ns) if self.is_small else self.path.read_bytes()

    def open(self) -> BinaryIO:
        """The file from its beginning; a small one is read from the disk once for all who look at it."""
        return BytesIO(self.read()) if self.is_small or self.kept is not None else self.path.open("rb")

    @property
    def is_small(self) -> bool:
        return 0 < self.size <= _SMALL


_HEAD, _SMALL, _MOST_KEPT = 4096, 1 << 16, 16 << 20


@lru_cache(maxsize=1024)
def _head(path: Path, _size: int, _mtime_ns: int) -> bytes:
    """Everybody who may know a file looks at its beginning; the size and the time tell when it has changed."""
    with path.open("rb", buffering=0) as stream:
        return stream.read(_HEAD)


class _SmallFiles:
    """Files that were read whole: all are looked at before the first is read, and those that fit are kept till then."""

    def __init__(self) -> None:
        self._texts: dict[tuple[Path, int, int], bytes] = {}
        self._bytes = 0

    def read(self, path: Path, size: int, mtime_ns: int) -> bytes:
        text = self._texts.get((path, size, mtime_ns))
        if text is None:
            with path.open("rb", buffering=0) as stream:
                text = stream.read(_SMALL)
            if self._bytes > _MOST_KEPT:
                self._texts.clear()
                self._bytes = 0
            self._texts[path, size, mtime_ns] = text
            self._bytes += len(text)
        return text


_whole = lru_cache(maxsize=4)(_SmallFiles().read)


class Reading(Struct):
    """What a reader made of one item. `records` are objects of `whichrank.records`."""

    records: list[Any] = field(default_factory=list)
    quality: Quality = "complete"
    note: str = ""


class Reader(Protocol):
    """One format. `sniff` sees the first 4 KiB and the name; `read` never raises on bad input
    other than `UnreadableError`, never executes what it reads, and is bounded in time and memory. What else a reader
    may declare is described in `flows/diagnose/reading.py`."""

    NAME: str

    def sniff(self, head: bytes, name: str) -> bool: ...

    def read(self, item: Item) -> Reading: ...


class Rule(Protocol):
    """One cause of the taxonomy. The module's docstring is its page. `judge` is pure:
    findings, an empty list for "clear", or `NotEvaluated` with what was missing."""

    CODE: str
    CAUSE: str

    def judge(self, case: Any) -> list[Finding] | NotEvaluated: ...


class Format(Protocol):
    """One way to tell a diagnosis."""

    NAME: str

    def render(self, diagnosis: Diagnosis) -> Iterator[str]: ...


class Fault(Protocol):
    """One way to break a job. The first line of the module's docstring says what it breaks.

    Beside what is below a fault has at least one of these functions, and more of these names where the defaults
    don't fit:

    - `inside(rank, point, value)`: runs in every rank at every point of the workload (`lab/workloads`); what it
      returns takes the value's place, None leaves it. `rank.strike()` says that the fault begins.
    - `outside(job)`: runs in the drill, beside the live job (`lab/job.py`).
    - `launch(setup)`: changes how the job is started (`lab/setup.py`).
    - `evidence(job)`: path in the bundle -> content, for hardware that nobody can break here; marks the fault as
      injected.
    - `culprits(plan)`: the ranks that the verdict must name; by default the rank of the plan, `[]` for nobody, None
      where no rank is to blame or the evidence can't tell.
    - `ACCEPT` (other causes that are right too), `NEEDS` ("root", "namespaces", "mounts", "gpu"), `LEAST_WORLD` (2),
      `ENDING` ("hang", "crash", or "running" for a job that goes on and is looked at while it does), `BACKENDS` (both),
      `GUARD` (False: whether the job runs with --guard).
    """

    CAUSE: str
    CATEGORY: str
    WORKLOAD: str
