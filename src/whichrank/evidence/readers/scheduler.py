"""Which job of a scheduler this was, and the signal that ended it, as `whichrank run` writes them into a bundle."""

from __future__ import annotations

import json
from typing import Any

from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.model.evidence import Ref
from whichrank.model.moments import rfc3339_ns
from whichrank.records.events.base import Event
from whichrank.records.events.launchers import JobEnded, SchedulerJob

NAME = "scheduler"

_MOST = 16 << 20
_MOST_NODES = 100_000


def sniff(head: bytes, name: str) -> bool:
    """True for a JSON document that says so at its beginning."""
    return name.endswith(".json") and b'"whichrank_scheduler"' in head[:64]


def read(item: Item) -> Reading:
    """The job, and its end where a signal from outside brought it."""
    if item.size > _MOST:
        raise UnreadableError(f"{item.label}: {item.size >> 20} MiB are no words of a scheduler")
    try:
        content = json.loads(item.read().decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{item.label}: no valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise UnreadableError(f"{item.label}: no object in it")
    host = _text(content, "host") or None
    events: list[Event] = []
    job, ended = content.get("scheduler"), content.get("ended")
    if isinstance(job, dict):
        events.append(_job(item.label, job, host))
    if isinstance(ended, dict):
        events.append(_end(item.label, ended, host))
    return Reading([*events], "complete")


def _job(label: str, job: dict[str, Any], host: str | None) -> SchedulerJob:
    told = job.get("nodes")
    nodes = tuple(str(node)[:255] for node in told[:_MOST_NODES]) if isinstance(told, list) else ()
    quote = f"{_text(job, 'kind')} job {_text(job, 'job')} on {len(nodes)} nodes"
    return SchedulerJob(
        ref=Ref(label, "scheduler", quote, None, host), host=host, scheduler=_text(job, "kind"), job=_text(job, "job"),
        name=_text(job, "name"), step=_text(job, "step"), node=_text(job, "node"), nodes=nodes,
        restarts=_whole(job, "restarts") or 0, ends=_text(job, "ends"),
    )  # fmt: skip


def _end(label: str, ended: dict[str, Any], host: str | None) -> JobEnded:
    name, sender = _text(ended, "signal_name") or "a signal", _text(ended, "sender")
    reason, time_ns, limit_ns = _text(ended, "reason"), _whole(ended, "time_ns"), _whole(ended, "limit_ns")
    words = f"{name} from {sender or 'outside this host'}" + (f", {reason}" if reason else "")
    if time_ns is not None and limit_ns is not None:
        late = (time_ns - limit_ns) / 1e9
        words += f"; the limit was {rfc3339_ns(limit_ns)}, {abs(late):.0f} s {'before' if late >= 0 else 'after'} it"
    time = rfc3339_ns(time_ns) if time_ns is not None else None
    ref = Ref(label, "ended", words, None, host, time)
    return JobEnded(ref=ref, time_ns=time_ns, host=host, by=sender or "outside", reason=reason, signal=name)


def _text(row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    return value[:300] if isinstance(value, str) else ""


def _whole(row: dict[str, Any], key: str) -> int | None:
    value = row.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None
