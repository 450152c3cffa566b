"""What Slurm's records say of one job: tables of `sacct` (padded, or `-P`), and `scontrol show job`.

A table of several jobs is a history: nothing in it says which of them the other evidence is of.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from whichrank.evidence.text.plain_lines import plain_lines
from whichrank.evidence.text.text_file import is_text
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.events.base import Event
from whichrank.records.events.launchers import HostOutOfMemory, JobEnded
from whichrank.records.events.run_state import RunFinished

NAME = "slurm_records"
BESIDE = True

_MOST_BYTES, _MOST_ROWS = 8 << 20, 20_000
_JOB = re.compile(r"(\d{1,12}(?:_\d{1,9})?)(?:[+]\d{1,6})?(?:\.(\w{1,32}))?")
_SHOWN = re.compile(r"\b(JobId|JobState|ExitCode|NodeList)=(\S{1,500})")
_ENDS = {"TIMEOUT": "time limit", "DEADLINE": "deadline", "PREEMPTED": "preemption", "NODE_FAIL": "NODE FAILURE",
         "BOOT_FAIL": "NODE FAILURE", "CANCELLED": "cancelled"}  # fmt: skip
_MEMORY = ("OUT_OF_MEMORY", "OUT_OF_ME+")
_UNDER_WAY = ("RUNNING", "PENDING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED", "RESIZING", "CONFIGURING", "COMPLETING")
_OF_SLURM = ("batch", "extern", "interactive")


class _Row(Struct, frozen=True):
    """What is said of a job, or of one of its steps."""

    name: str
    """The job with its component, where it has several."""
    job: str
    step: str
    state: str
    code: str
    nodes: str
    line: int
    quote: str


def sniff(head: bytes, name: str) -> bool:
    """Whether the beginning has such a table or record."""
    del name
    return is_text(head) and ((b"JobID" in head and b"State" in head) or b"JobState=" in head)


def read(item: Item) -> Reading:
    """That the job ended well, or how Slurm says that it ended."""
    rows = _rows(item)
    if len({row.job for row in rows}) != 1:
        return Reading([], "ignored", "no records of one Slurm job in it")
    return Reading([*_told(item.label, _of_last_attempt(rows))], "complete")


class _Table(Struct):
    """The head of a table: the names of its columns, and where they stand once a line of dashes has shown it."""

    names: list[str]
    separator: str | None
    spans: list[tuple[int, int]] = []

    @classmethod
    def of(cls, head: str) -> _Table:
        separator = "|" if "|" in head else None
        return cls([name.strip().lower() for name in head.split(separator)], separator)

    def cells(self, line: str) -> dict[str, str]:
        parts = [line[first : last + 1] for first, last in self.spans] or line.split(self.separator)
        return {name: part.strip() for name, part in zip(self.names, parts, strict=False)}


def _rows(item: Item) -> list[_Row]:
    rows: list[_Row] = []
    table: _Table | None = None
    shown: dict[str, str] = {}
    for number, line in plain_lines(item, _MOST_BYTES):
        if len(rows) >= _MOST_ROWS:
            break
        if "JobID" in line and "State" in line:
            table = _Table.of(line)
        elif table is not None and set(line) == {"-", " "}:
            table.spans = [match.span() for match in re.finditer("-+", line)]
        elif table is not None and (row := _row(table.cells(line), number, line)) is not None:
            rows.append(row)
        elif found := dict(_SHOWN.findall(line)):
            shown = found if "JobId" in found else shown | found
            if shown.keys() >= {"JobId", "JobState", "ExitCode", "NodeList"}:
                rows.append(_shown(shown, number))
                shown = {}
    return rows


def _shown(said: dict[str, str], number: int) -> _Row:
    quote = " ".join(f"{key}={value}" for key, value in said.items())[:300]
    return _Row(said["JobId"], said["JobId"], "", said["JobState"], said["ExitCode"], said["NodeList"], number, quote)


def _row(cells: dict[str, str], number: int, line: str) -> _Row | None:
    known = _JOB.fullmatch(cells.get("jobid", ""))
    state = cells.get("state", "")
    if known is None or not state[:1].isupper():
        return None
    nodes = cells.get("nodelist", "")
    name, step, code = known[0].partition(".")[0], known[2] or "", cells.get("exitcode", "")
    return _Row(name, known[1], step, state.split()[0], code, nodes, number, line.strip()[:300])


def _of_last_attempt(rows: list[_Row]) -> list[_Row]:
    """Without the attempts before the last: `sacct -D` lists a job once for each time that it was requeued.

    All of them where the last one has not ended."""
    whole = [at for at, row in enumerate(rows) if not row.step]
    components = {rows[at].name for at in whole}
    ended = len(components) == 1 and rows[whole[-1]].state not in _UNDER_WAY
    return rows[whole[-1] :] if ended else rows


def _told(label: str, rows: list[_Row]) -> list[Event]:
    whole = [row for row in rows if not row.step]
    steps = [row for row in rows if row.step and row.step not in _OF_SLURM]
    # A step that the script itself ends, such as a sampler of the GPUs, is cancelled in a job that ended well.
    bad = [row for row in steps if row.state not in ("COMPLETED", "CANCELLED", "CANCELLED+")]
    if whole and not bad and all(row.state == "COMPLETED" and row.code in ("0:0", "") for row in whole):
        tasks = any(row.state == "COMPLETED" and row.code == "0:0" for row in steps)
        how: Literal["accounted", "tasks"] = "tasks" if tasks else "accounted"
        return [RunFinished(ref=_ref(label, whole[-1]), line=whole[-1].line, how=how)]
    events: list[Event] = []
    for row in bad or whole:
        host = None if not row.nodes or set(row.nodes) & set(",[( ") else row.nodes
        if row.state in _MEMORY:
            ref = _ref(label, row, host)
            events.append(HostOutOfMemory(ref=ref, line=row.line, host=host, by="slurm", reason=row.quote))
        elif reason := _ENDS.get(row.state.rstrip("+")):
            events.append(JobEnded(ref=_ref(label, row, host), line=row.line, host=host, by="slurm", reason=reason))
    return events


def _ref(label: str, row: _Row, host: str | None = None) -> Ref:
    return Ref(label, f"line {row.line}", row.quote, None, host)
