"""RAS reports and events as JSON (2.28.7 and later), whole or broken off."""

from __future__ import annotations

import json
import re
from typing import Any

from whichrank.records.ras import RasComm, RasEvent, RasProcess, RasRank, RasReport, mismatches_of

_DECODER = json.JSONDecoder()
_SALVAGE = re.compile(r'"hash":\s{0,8}"(0x[0-9a-fA-F]{1,16})"|"size":\s{0,8}(\d{1,9})|\{\s{0,32}"rank":')
_START = re.compile(r"^\s{0,64}\{", re.MULTILINE)
# NCCL 2.28.9 leaves a comma out where it tells of a rank that is missing (recorded with a stopped rank).
_NO_COMMA = re.compile(r'("nvml_dev":\s{0,8}-?\d{1,9})(\s{1,64}"status")')
# A rank takes about 450 characters.
_LONGEST_RANK = 4096
# A report breaks off once: more broken ranks than this is no report.
_BROKEN_RANKS = 16


def read_json(text: str, source: str) -> list[RasReport]:
    """Every report in this text, and all events together as one more."""
    reports: list[RasReport] = []
    events: list[RasEvent] = []
    position = 0
    text = _NO_COMMA.sub(r"\1,\2", text)
    while start := _START.search(text, position):
        try:
            value, position = _DECODER.raw_decode(text, start.end() - 1)
        except (ValueError, RecursionError):
            salvaged = _salvage(text[start.end() - 1 :], source)
            if salvaged.comms:
                reports.append(salvaged)
            break
        if "communicators" in value:
            reports.append(_report(value, source))
        elif "event" in value:
            events.append(_event(value, text.count("\n", 0, start.end()) + 1 if len(events) < 1000 else 0))
    if events:
        reports.append(RasReport(source, "events", events=events))
    return reports


def _report(value: dict[str, Any], source: str) -> RasReport:
    report = RasReport(source, "json")
    report.time = _string(value.get("timestamp"))
    report.comms = [_comm(item) for item in _objects(value.get("communicators"))]
    report.no_data = not report.comms
    for comm in report.comms:
        report.mismatches.extend(mismatches_of(comm))
    return report


def _comm(value: dict[str, Any]) -> RasComm:
    return RasComm(
        comm_id=_comm_id(_string(value.get("hash")) or ""),
        size=_integer(value.get("size")) or 0,
        ranks=tuple(_rank(item, missing=False) for item in _objects(value.get("ranks"))),
        missing=tuple(_rank(item, missing=True) for item in _objects(value.get("missing_ranks"))),
    )


def _rank(value: dict[str, Any], *, missing: bool) -> RasRank:
    status = _object(value.get("status"))
    counts = value.get("collective_counts")
    return RasRank(
        rank=_integer(value.get("rank")) or 0,
        host=_string(value.get("host")),
        pid=_integer(value.get("pid")),
        cuda_dev=_integer(value.get("cuda_dev")),
        init_state=_integer(status.get("init_state")),
        finalize_called=_boolean(status.get("finalize_called")),
        destroyed=_boolean(status.get("destroy_flag")),
        aborted=_boolean(status.get("abort_flag")),
        counts={name: count for name, count in counts.items() if type(count) is int}
        if isinstance(counts, dict)
        else None,
        missing=missing,
    )


def _event(value: dict[str, Any], line: int) -> RasEvent:
    peer = _object(value.get("peer"))
    host, pid = _string(peer.get("host")), _integer(peer.get("pid"))
    gpus = ",".join(str(item) for item in peer.get("cuda_devs", ()) if type(item) is int) if host else ""
    process = RasProcess(host, pid, gpus) if host and pid is not None else None
    text = _string(value.get("details")) or ""
    return RasEvent(_string(value.get("event")) or "", _string(value.get("timestamp")) or "", process, text, line)


def _salvage(text: str, source: str) -> RasReport:
    """What stands before the break: communicators with the ranks that are whole."""
    report = RasReport(source, "json", complete=False)
    comm_id, size, broken = "", 0, 0
    ranks: list[RasRank] = []
    for found in _SALVAGE.finditer(text):
        if found[1]:
            _close(report, comm_id, size, ranks)
            comm_id, size, ranks = _comm_id(found[1]), 0, []
        elif found[2]:
            size = int(found[2])
        elif comm_id:
            try:
                value, _ = _DECODER.raw_decode(text[found.start() : found.start() + _LONGEST_RANK])
            except (ValueError, RecursionError):
                broken += 1
                if broken > _BROKEN_RANKS:
                    break
                continue
            ranks.append(_rank(value, missing="considered_dead" in _object(value.get("status"))))
    _close(report, comm_id, size, ranks)
    return report


def _close(report: RasReport, comm_id: str, size: int, ranks: list[RasRank]) -> None:
    if comm_id:
        present = tuple(rank for rank in ranks if not rank.missing)
        absent = tuple(rank for rank in ranks if rank.missing)
        comm = RasComm(comm_id, size, present, absent)
        report.comms.append(comm)
        report.mismatches.extend(mismatches_of(comm))


def _comm_id(text: str) -> str:
    return text.lower().removeprefix("0x").zfill(16)


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _integer(value: object) -> int | None:
    return value if type(value) is int else None


def _boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None
