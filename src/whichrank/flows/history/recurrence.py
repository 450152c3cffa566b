"""What past verdicts say together: the same host again, the same GPU, the same line of code."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from whichrank.facts import taxonomy
from whichrank.flows.history import store
from whichrank.flows.history.store import Entry
from whichrank.model.errors import UsageError
from whichrank.model.findings import CodePlace, Gpu
from whichrank.model.moments import rfc3339
from whichrank.model.verdict import Diagnosis

Kind = Literal["host", "gpu", "code"]

WEEK_S = 7 * 86_400.0
_UNITS = {"m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": WEEK_S}
_SINCE = re.compile(r"(\d{1,6})\s*([mhdw])")
_OF_THE_HOST = ("gpu-hardware", "rdma-fabric", "pcie-p2p", "net-interface", "software-version")
"""Families of causes that lie with a host; in others it is only the place where a guilty rank ran."""
_BY_THE_HOST = frozenset(
    {"host-lost", "host-out-of-memory", "disk-full", "storage-stall", "shm-too-small", "fd-limit", "clock-skew",
     "cpu-starved"}
)  # fmt: skip


class Repeat(Struct, frozen=True):
    """Something that more than one job was lost to."""

    kind: Kind
    name: str
    count: int
    causes: tuple[str, ...]
    first: float
    last: float


def entry(diagnosis: Diagnosis, *, run: str, job: str, out: str, at: float | None = None) -> Entry:
    """A verdict as it is remembered; `run` names the run, so that the same verdict counts once in it."""
    verdict = diagnosis.verdict
    culprits = verdict.culprits
    hosts = dict.fromkeys([*culprits.hosts, *(gpu.host for gpu in culprits.gpus if gpu.host)])
    told = (run, verdict.cause, culprits.ranks, tuple(hosts), tuple(map(_code, culprits.code)))
    return Entry(
        id=hashlib.sha256(repr(told).encode("utf-8", "backslashreplace")).hexdigest()[:32],
        time=at if at is not None else time.time(),
        job=job,
        category=verdict.category,
        cause=verdict.cause or "unknown",
        confidence=round(float(verdict.confidence), 4),
        summary=verdict.summary,
        out=out,
        ranks=tuple(int(rank) for rank in culprits.ranks),
        hosts=tuple(hosts),
        gpus=tuple(dict.fromkeys(name for gpu in culprits.gpus if (name := _gpu(gpu)))),
        code=tuple(dict.fromkeys(map(_code, culprits.code))),
    )


def onset(diagnosis: Diagnosis) -> float | None:
    """When the trouble began, in seconds since 1970, where the evidence tells; never later than now."""
    for text in filter(None, (diagnosis.job.onset, diagnosis.job.started)):
        try:
            return min(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp(), time.time())
        except (ValueError, OverflowError):
            continue
    return None


def remember(new: Entry, file: Path | None = None) -> list[str]:
    """Keep a verdict, and say what it repeats of the last seven days; without a history nothing is said."""
    file = file or store.place()
    if file is None or new.category == "healthy":
        return []
    store.add(file, new)
    return sentences(new, store.read(file, since=new.time - WEEK_S))


def sentences(new: Entry, entries: Sequence[Entry]) -> list[str]:
    """`node7 was guilty 2 times in the last 7 days`, for all that the new verdict names."""
    named = {("host", host) for host in new.hosts} | {("gpu", gpu) for gpu in new.gpus}
    named |= {("code", code) for code in new.code}
    told = []
    for repeat in repeats(entries):
        if (repeat.kind, repeat.name) in named:
            what = {"host": repeat.name, "gpu": f"GPU {repeat.name}", "code": short(repeat.name)}[repeat.kind]
            verb = "named" if repeat.kind == "code" else "guilty"
            told.append(f"{what} was {verb} {repeat.count} times in the last 7 days ({', '.join(repeat.causes)})")
    return told


def repeats(entries: Sequence[Entry]) -> list[Repeat]:
    """Hosts, GPUs and lines of code that more than one entry names, the most frequent first."""
    found: dict[tuple[Kind, str], list[Entry]] = {}
    for each in entries:
        for key in _guilty(each):
            found.setdefault(key, []).append(each)
    told = [
        Repeat(
            kind, name, len(those), tuple(dict.fromkeys(e.cause for e in those)),
            min(e.time for e in those), max(e.time for e in those),
        )
        for (kind, name), those in found.items()
        if len(those) > 1
    ]  # fmt: skip
    return sorted(told, key=lambda repeat: (-repeat.count, repeat.kind, repeat.name))


def look_up(since_s: float, *, host: str = "", cause: str = "", file: Path | None = None) -> list[Entry]:
    """The entries of the last seconds that speak of this host and cause, the newest first."""
    file = file or store.place()
    if file is None:
        raise UsageError(f"the history is switched off ({store.VARIABLE}=off)", "Unset it to look into the history.")
    entries = store.read(file, since=time.time() - since_s)
    return [e for e in entries if (not host or host in e.hosts) and (not cause or cause == e.cause)]


def seconds(text: str) -> float:
    """`90m`, `36h`, `7d`, `4w`."""
    match = _SINCE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"'{text}' is not a duration", "Give a number and m, h, d or w, for example 7d.")
    return int(match[1]) * _UNITS[match[2]]


def as_document(entries: Sequence[Entry]) -> dict[str, Any]:
    """The plain values that the schema `history` describes."""
    return {
        "schema_version": 1,
        "entries": [_entry_document(each) for each in entries],
        "repeats": [
            {**asdict(repeat), "first": _when(repeat.first), "last": _when(repeat.last)} for repeat in repeats(entries)
        ],
    }


def _entry_document(each: Entry) -> dict[str, Any]:
    told = asdict(each)
    culprits = {name: list(told.pop(name)) for name in ("ranks", "hosts", "gpus", "code")}
    return {**told, "time": _when(each.time), "out": each.out or None, "culprits": culprits}


def short(code: str) -> str:
    """A line of code without the folders of its file."""
    file, colon, rest = code.rpartition(":")
    return f"{file.rsplit('/', 1)[-1]}{colon}{rest}"


def host_is_meant(cause: str) -> bool:
    """Whether this cause accuses the host, not only the rank that ran there."""
    known = taxonomy.causes().get(cause)
    return cause in _BY_THE_HOST or (known is not None and known.family in _OF_THE_HOST)


def _guilty(each: Entry) -> list[tuple[Kind, str]]:
    hosts: list[tuple[Kind, str]] = [("host", host) for host in each.hosts] if host_is_meant(each.cause) else []
    return [*hosts, *(("gpu", gpu) for gpu in each.gpus), *(("code", code) for code in each.code)]


def _gpu(gpu: Gpu) -> str:
    """A name that stays the same from job to job; empty where there is none."""
    return gpu.uuid or (f"{gpu.host}:{gpu.index}" if gpu.host and gpu.index >= 0 else "")


def _code(place: CodePlace) -> str:
    where = f"{place.file}:{place.line}"
    return f"{where} in {place.function}" if place.function else where


def _when(moment: float) -> str | None:
    try:
        return rfc3339(datetime.fromtimestamp(moment, timezone.utc))
    except (OSError, OverflowError, ValueError):
        return None
