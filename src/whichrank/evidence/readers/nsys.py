"""Profiles of Nsight Systems, exported to SQLite (`nsys export --type sqlite`)."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing
from typing import Any
from urllib.parse import quote

import numpy as np

from whichrank.evidence.readers.kineto import kinds, rank_of_name
from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.records.profiles.trace import COMPUTE, MARK, MEMORY, RUNTIME, Lane, Spans, Trace

NAME = "nsys"
MOST_ROWS = 12_000_000
MOST_SECONDS = 600.0
MOST_PROCESSES = 64
_KERNELS, _COPIES, _FILLS = (
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
)  # fmt: skip
_CALLS, _RANGES = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
_DEFAULT_NAME = re.compile(r"(?:^|(?<=/))report\d+")
_PUSH_POP = 59
"""NVTX_EVENTS.eventType of NvtxPushPopRange (60 is NvtxStartEndRange)."""


def sniff(head: bytes, name: str) -> bool:
    """True for a SQLite file that may be an export; its tables decide when it is read."""
    return head.startswith(b"SQLite format 3\x00") and not name.endswith((".db", ".db3"))


def read(item: Item) -> Reading:
    """Kernels, copies, calls of the driver and NVTX ranges as columns."""
    # Opened read-only, as a file that nobody changes: no journal is written beside it, no extension is loaded.
    uri = f"file:{quote(str(item.path.absolute()))}?mode=ro&immutable=1"
    until = time.monotonic() + MOST_SECONDS
    try:
        with closing(sqlite3.connect(uri, uri=True)) as base:
            base.text_factory = lambda text: text.decode("utf-8", "replace")
            base.execute("PRAGMA trusted_schema=OFF")
            base.set_progress_handler(lambda: int(time.monotonic() > until), 1_000_000)
            tables = {str(row[0]) for row in base.execute("SELECT name FROM sqlite_master WHERE type='table'")}
            if not tables & {_KERNELS, _CALLS}:
                return Reading(quality="ignored", note="a database, but no export of Nsight Systems with CUDA activity")
            return _reading(base, tables, item)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # its own messages quote the file, and are decoded strictly
        raise UnreadableError(f"{item.label}: not a readable SQLite file ({error})") from error


def _reading(base: sqlite3.Connection, tables: set[str], item: Item) -> Reading:
    """One profile per process that used a device: `nsys profile torchrun …` puts all ranks of a host into one file."""
    processes = _processes(base, tables)
    if len(processes) < 2:
        trace = _Export(base, tables, item).trace()
        return Reading([trace], "complete", f"{trace.events:,} events, {len(trace.device):,} on a device")
    traces = [_Export(base, tables, item, process).trace() for process in processes]
    for number, trace in enumerate(traces):
        trace.rank = number
    note = f"{len(traces)} processes, {sum(t.events for t in traces):,} events; ranks in the order of their devices"
    return Reading(list(traces), "complete", note)


def _processes(base: sqlite3.Connection, tables: set[str]) -> list[int]:
    """The processes that ran kernels, in the order of their devices; none where the export does not tell."""
    if _KERNELS not in tables or "globalPid" not in _columns(base, _KERNELS):
        return []
    query = (
        f"SELECT globalPid FROM {_KERNELS} GROUP BY globalPid ORDER BY MIN(deviceId), globalPid LIMIT {MOST_PROCESSES}"  # noqa: S608
    )
    return [int(row[0]) for row in base.execute(query) if isinstance(row[0], int)]


def _columns(base: sqlite3.Connection, table: str) -> set[str]:
    return {str(row[1]) for row in base.execute(f"PRAGMA table_info({table})")}


class _Export:
    def __init__(self, base: sqlite3.Connection, tables: set[str], item: Item, process: int | None = None) -> None:
        self.base, self.tables, self.item = base, tables, item
        self.process = process
        """Only what this process did; None: all of it."""
        self.names: dict[str, int] = {}
        self.lanes: dict[tuple[str, str, bool], int] = {}
        self.streams: set[int] = set()
        self.rows: dict[bool, list[tuple[int, int, int, int, int, int]]] = {True: [], False: []}

    def trace(self) -> Trace:
        self._kernels()
        self._moves()
        self._calls()
        self._ranges()
        names = list(self.names)
        lanes = [Lane(*key) for key in self.lanes]
        device, host = self._spans(on_device=True), self._spans(on_device=False)
        return Trace(
            source=self.item.label, device=device, host=host, names=names, lanes=lanes, collectives=[],
            rank=rank_of_name(_DEFAULT_NAME.sub("", self.item.label)),
            accelerator=self._gpu(), events=len(device) + len(host), reader=NAME,
        )  # fmt: skip

    def _mine(self, table: str) -> str:
        """The condition that a row is of this process. The upper bits of a thread's number are its process."""
        if self.process is None:
            return "1"
        columns = self._columns(table)
        if "globalPid" in columns:
            return f"globalPid = {self.process}"
        return f"(globalTid & ~16777215) = {self.process}" if "globalTid" in columns else "1"

    def _number(self, name: str) -> int:
        return self.names.setdefault(name[:512], len(self.names))

    def _lane(self, process: str, thread: str, *, device: bool) -> int:
        number = self.lanes.setdefault((process, thread, device), len(self.lanes))
        if device:
            self.streams.add(number)
        return number

    def _strings(self) -> dict[int, str]:
        if "StringIds" not in self.tables:
            return {}
        return {int(number): str(text) for number, text in self.base.execute("SELECT id, value FROM StringIds")}

    def _kernels(self) -> None:
        if _KERNELS not in self.tables:
            return
        strings = self._strings()
        columns = self._columns(_KERNELS)
        name = "demangledName" if "demangledName" in columns else "shortName"
        query = f"SELECT start, end, {name}, deviceId, streamId, correlationId FROM {_KERNELS} WHERE {self._mine(_KERNELS)} LIMIT {MOST_ROWS}"  # noqa: S608, E501
        for start, end, text, gpu, stream, link in self.base.execute(query):
            what = strings.get(text, str(text))
            kind = kinds.device_kind(what, COMPUTE)
            lane = self._lane(f"GPU {gpu}", f"stream {stream}", device=True)
            self._add(start, end, what, kind, lane, link)

    def _moves(self) -> None:
        for table, word in ((_COPIES, "Memcpy"), (_FILLS, "Memset")):
            if table not in self.tables:
                continue
            what = "copyKind" if "copyKind" in self._columns(table) else "0"
            query = f"SELECT start, end, {what}, deviceId, streamId, correlationId FROM {table} WHERE {self._mine(table)} LIMIT {MOST_ROWS}"  # noqa: S608, E501
            for start, end, kind, gpu, stream, link in self.base.execute(query):
                name = f"{word} {_COPY_KINDS.get(kind, '')}".strip()
                lane = self._lane(f"GPU {gpu}", f"stream {stream}", device=True)
                self._add(start, end, name, MEMORY, lane, link)

    def _calls(self) -> None:
        if _CALLS not in self.tables:
            return
        strings = self._strings()
        query = f"SELECT start, end, nameId, globalTid, correlationId FROM {_CALLS} WHERE {self._mine(_CALLS)} LIMIT {MOST_ROWS}"  # noqa: S608, E501
        for start, end, text, thread, link in self.base.execute(query):
            lane = self._lane("host", f"thread {int(thread or 0) & 0xFFFFFF}", device=False)
            self._add(start, end, strings.get(text, str(text)).partition("_v")[0], RUNTIME, lane, link)

    def _ranges(self) -> None:
        columns = self._columns(_RANGES) if _RANGES in self.tables else set()
        if not {"start", "end", "text", "globalTid"} <= columns:
            return
        strings = self._strings() if "textId" in columns else {}
        label = "textId" if "textId" in columns else "NULL"
        query = (
            f"SELECT start, end, text, {label}, globalTid FROM {_RANGES} "  # noqa: S608
            f"WHERE end IS NOT NULL AND eventType IN ({_PUSH_POP}, 60) AND {self._mine(_RANGES)} LIMIT {MOST_ROWS}"
        )
        for start, end, text, number, thread in self.base.execute(query):
            name = str(text) if text is not None else strings.get(number, "")
            lane = self._lane("host", f"thread {int(thread or 0) & 0xFFFFFF}", device=False)
            self._add(start, end, name, kinds.host_kind(name, MARK), lane, -1)

    def _add(self, start: Any, end: Any, name: str, kind: int, lane: int, link: Any) -> None:
        times = (start, end)
        if not all(isinstance(t, int) and 0 <= t < 1 << 62 for t in times):
            return
        known = link if isinstance(link, int) and 0 <= link < 1 << 62 else -1
        self.rows[lane in self.streams].append((start, max(start, end), self._number(name), lane, kind, known))

    def _spans(self, *, on_device: bool) -> Spans:
        rows = np.array(self.rows.pop(on_device), np.int64).reshape(-1, 6)
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        return Spans(
            rows[:, 0], rows[:, 1], rows[:, 2].astype(np.int32), rows[:, 3].astype(np.int32),
            rows[:, 4].astype(np.int8), rows[:, 5], np.full(len(rows), -1, np.int32),
        )  # fmt: skip

    def _columns(self, table: str) -> set[str]:
        return _columns(self.base, table)

    def _gpu(self) -> str:
        if "TARGET_INFO_GPU" not in self.tables or "name" not in self._columns("TARGET_INFO_GPU"):
            return ""
        row = self.base.execute("SELECT name FROM TARGET_INFO_GPU LIMIT 1").fetchone()
        return str(row[0])[:80] if row else ""


# CUpti_ActivityMemcpyKind (cupti_activity.h).
_COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
