"""Dumps of PyTorch's flight recorder: pickles of every version, and JSON.

Versions, by torch's sources: torch 2.2 writes a bare list of entries (times in microseconds, no
record_id); 1.x (2.3) a dict with one `seq_id` per entry and pg_config as group number -> list of ranks;
2.x (2.4 and later) the form described by the names below. In 1.x to 2.1 the entries come first.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from whichrank.evidence.readers.flight_recorder.groups import local_groups, status
from whichrank.evidence.readers.flight_recorder.names import host_from_name, rank_from_name
from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.model.late_pattern import late
from whichrank.records.dump import Dump

if TYPE_CHECKING:
    from whichrank.evidence.readers.flight_recorder.calls import Calls
    from whichrank.evidence.readers.flight_recorder.columns import Columns

__all__ = ["NAME", "host_from_name", "rank_from_name", "read", "sniff"]

NAME = "flight_recorder"

_MAX_BYTES = 128 << 20  # 2000 entries take 0.3 to 1 MB
_MAX_JSON_VALUES = 3_000_000  # about 30 per entry; each costs up to 230 bytes once decoded
_WORDS = (b"profiling_name", b"pg_config", b"record_id", b"entries", b"pg_status")
_JSON_WORDS = late(rb'"(?:pg_config|pg_status)"\s{0,9}:\s{0,9}\{|"(?:profiling_name|collective_seq_id)"\s{0,9}:')
_PROFILER_WORDS = (b'"traceEvents"', b'"schemaVersion"', b'"distributedInfo"', b'"deviceProperties"')
_DUMP_NAME = late(r"(?:^|[_.\-])(?:fr|nccl|comm_lib|trace|flight|dump)(?=[_.\-\d]|$)|rank[_.\-]?\d", re.IGNORECASE)
# The legacy format of torch.save begins with this number as a pickle of its own.
_TORCH_SAVE = b"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})")


def sniff(head: bytes, name: str) -> bool:
    """A pickle or JSON with the words of a dump, or any pickle called like one: it will be refused aloud."""
    if head[:1] == b"\x80":
        if head[1:2] > b"\x05" or head.startswith(_TORCH_SAVE):
            return False
        return any(word in head for word in _WORDS) or _DUMP_NAME.search(name.rsplit("/", 1)[-1]) is not None
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start not in (b"{", b"[") or any(word in head for word in _PROFILER_WORDS):
        return False
    return _JSON_WORDS.search(head) is not None


def read(item: Item) -> Reading:
    """Decode one dump into columns."""
    data = _bytes(item)
    if len(data) > _MAX_BYTES:
        raise UnreadableError(f"{item.label} has more than {_MAX_BYTES >> 20} MiB, far more than a dump")
    pickled = data[:1] == b"\x80"
    taken = _taken(data) if pickled else None
    if taken is not None:
        top, rows, calls = taken
        why, dropped = "", rows.dropped
    else:
        top, unfinished, why = _pickle(data) if pickled else _json(data)
        top = {"entries": top} if isinstance(top, list) else top
        if not isinstance(top, dict) or not ("entries" in top or "pg_config" in top or "pg_status" in top):
            raise UnreadableError(f"{item.label}: {why or 'this is no flight-recorder dump'}")
        if not isinstance(top.get("entries", []), list):
            raise UnreadableError(f"{item.label}: the entries are no list")
        rows, calls, dropped = _walked(top.get("entries", []), unfinished)
    dump = _dump(item, top, rows, calls)
    if why and not len(dump):  # its entries are lost, which is not the same as none recorded
        raise UnreadableError(f"{item.label}: {why}, before its first entry")
    return Reading([dump], "partial" if why or dropped else "complete", _note(dump, why, dropped))


def _bytes(item: Item) -> bytes:
    """The file, and no more room than it needs: reading up to the limit would reserve all of that, every time."""
    with item.path.open("rb", buffering=0) as stream:
        data = stream.read(min(os.fstat(stream.fileno()).st_size, _MAX_BYTES) + 1) or b""
        room = 1 << 16
        while len(data) <= _MAX_BYTES and (more := stream.read(room)):  # it has grown meanwhile
            data, room = data + more, 2 * room
    return data


def _taken(data: bytes) -> tuple[dict[Any, Any], Columns, Calls] | None:
    """The dump by the decoder in C; None where that is not built, or leaves the file to the one in Python."""
    from whichrank.evidence.pickle.native import records
    from whichrank.evidence.readers.flight_recorder.columns import NATIVE, columns_of

    found = records(data, NATIVE)
    return (found.rest, *columns_of(found)) if found is not None else None


def _walked(entries: list[Any], unfinished: list[Any]) -> tuple[Columns, Calls, int]:
    """Columns, and how many entries could not be read; the one that was cut off at the end is not counted."""
    from whichrank.evidence.readers.flight_recorder.walked import columns

    rows, calls = columns(entries, unfinished)
    cut_off = bool(entries) and any(entries[-1] is one for one in unfinished)
    return rows, calls, rows.dropped - cut_off


def _note(dump: Dump, why: str, dropped: int) -> str:
    note = f"{len(dump)} entries"
    if why:
        note = f"{why}; {note} before that were complete and are used"
    if dropped:
        note += f"; {dropped} could not be read as entries"
    return note


def _dump(item: Item, top: dict[Any, Any], rows: Columns, calls: Calls) -> Dump:
    oldest = int(rows.record_id[0] if rows.numbered else rows.seq[0] - 1) if len(rows.seq) else 0
    return Dump(
        source=item.label,
        rank=rank_from_name(item.label),
        version=_version(top.get("version")),
        comm_lib=_first_text(top, "comm_lib_version", "nccl_version"),
        groups=local_groups(calls.groups, top.get("pg_config")),
        calls=calls.calls,
        status=status(top.get("pg_status")),
        has_frames=rows.has_frames,
        host=host_from_name(item.label),
        mtime_ns=item.mtime_ns,
        newest_ns=rows.newest_ns,
        capacity_wrapped=oldest > 0,
        record_id=rows.record_id,
        group=rows.group,
        call=rows.call,
        seq=rows.seq,
        p2p_seq=rows.p2p_seq,
        created_ns=rows.created_ns,
        completed_ns=rows.completed_ns,
        duration_ms=rows.duration_ms,
        state=rows.state,
        retired=rows.retired,
    )


def _first_text(top: dict[Any, Any], *keys: str) -> str:
    return next((top[key] for key in keys if isinstance(top.get(key), str)), "")


def _version(value: object) -> tuple[int, int]:
    """Two integers: "2.10" is newer than "2.9"."""
    match = _VERSION.match(value) if isinstance(value, str) else None
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _pickle(data: bytes) -> tuple[Any, list[Any], str]:
    from whichrank.evidence.pickle.decoder import decode
    from whichrank.evidence.readers.flight_recorder.walked import SHAPE

    decoded = decode(data, SHAPE)
    return decoded.value, decoded.unfinished, decoded.why


def _json(data: bytes) -> tuple[Any, list[Any], str]:
    """Decode JSON; one that ends early is closed behind its last complete entry."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    if data.count(b",") + data.count(b"[") + data.count(b"{") > _MAX_JSON_VALUES:
        raise UnreadableError(f"the file holds more than {_MAX_JSON_VALUES} JSON values")
    top = _json_value(data)
    if top is not None:
        return top, [], ""
    whole = data[: data.rfind(b"}") + 1]
    for ending in (b"]}", b"}", b"}}", b"]"):
        top = _json_value(whole + ending)
        if top is not None:
            return top, [], f"the JSON ends early, at byte {len(data)}"
    raise UnreadableError("this is not valid JSON")


def _json_value(data: bytes) -> Any:
    import json

    import msgspec

    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:  # Python's own takes NaN and Infinity, which Python programs write
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
