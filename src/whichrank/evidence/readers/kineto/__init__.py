"""Profiles in Chrome's trace format: torch.profiler (Kineto) of every era, and others that write it."""

from __future__ import annotations

import re
from typing import Any

from whichrank.evidence.readers.kineto.batches import Batches
from whichrank.evidence.readers.kineto.collectives import described, noted
from whichrank.evidence.readers.kineto.table import LONGEST_NAME, MOST_SPANS, Table, exact_times
from whichrank.evidence.trace_files import is_trace, pieces
from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.model.evidence import Quality
from whichrank.records.profiles.trace import Collective, Filled, Trace

NAME = "kineto"
_MOST_RANKS = 1 << 20
_MOST_CALLS = 1 << 16
_RANK = re.compile(r"(?:rank|worker|r)[-_.]?(\d{1,7})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\d.])(\d{1,6})(?!\d)")


def sniff(head: bytes, name: str) -> bool:
    """True for a trace, compressed or not."""
    del name
    return is_trace(head)


def read(item: Item) -> Reading:
    """The spans of one process as columns."""
    table = Table(exact=exact_times(_beginning(item)))
    with pieces(item.path) as source:
        batches: Batches[Any] = Batches(source, table.decode, table.scanner())
        for batch in batches:
            table.add(batch)
        cut = source.cut
    if not table.events and batches.unended:
        raise UnreadableError(f"{item.label}: no list of events in it")
    other = batches.around.get("otherData")
    if isinstance(other, dict) and str(other.get("written by")).startswith("whichrank"):
        return Reading(quality="ignored", note="profiles that whichrank merged, not evidence")
    device, host, names, lanes = table.finish()
    notes = _notes(table, batches, cut)
    trace = _identified(item, batches.around)
    trace.device, trace.host, trace.names, trace.lanes = device, host, names, lanes
    trace.only_group = _only_group(batches.around)
    trace.collectives, trace.events, trace.cut = table.collectives, table.events, "; ".join(notes)
    trace.ends_early = bool(cut or batches.unended)
    trace.profiler_steps = sum("ProfilerStep" in name for name in table.names)
    quality: Quality = "partial" if notes else "complete"
    note = f"{table.events:,} events, {len(device):,} on a device" + "".join(f"; {text}" for text in notes)
    return Reading([trace], quality, note)


def _beginning(item: Item) -> bytes:
    with pieces(item.path, 1 << 16) as source:
        return next(iter(source), b"")


def _notes(table: Table, batches: Batches[Any], cut: str) -> list[str]:
    notes = []
    if cut or batches.unended:
        notes.append(cut or "the file ends before its list of events does")
    if batches.refused:
        notes.append(f"{batches.refused:,} events are not valid JSON")
    if table.odd:
        notes.append(f"{table.odd:,} events have no name, start or duration")
    if table.count >= MOST_SPANS:
        notes.append(f"only the first {MOST_SPANS:,} spans were used")
    return notes


def _identified(item: Item, around: dict[str, Any]) -> Trace:
    from whichrank.records.profiles.trace import Spans

    info = around.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    properties = around.get("deviceProperties")
    first = properties[0] if isinstance(properties, list) and properties else {}
    return Trace(
        source=item.label,
        device=Spans(),
        host=Spans(),
        names=[],
        lanes=[],
        collectives=[],
        rank=_whole(info.get("rank"), _MOST_RANKS) if info else rank_of_name(item.label),
        world=_whole(info.get("world_size"), _MOST_RANKS),
        backend=str(info.get("backend") or "")[:80],
        host_name=str(around.get("host_name") or "")[:200],
        accelerator=str(first.get("name") or "")[:80] if isinstance(first, dict) else "",
        base_ns=_whole(around.get("baseTimeNanoseconds"), 1 << 62) or 0,
        reader=NAME,
        step_s=_step_times(around.get("whichrank")),
        ddp_buckets=_ddp_buckets(around.get("whichrank")),
        step_collectives=_step_collectives(around.get("whichrank")),
    )


def _step_times(told: Any) -> tuple[float, float] | None:
    """What `whichrank profile` measured beside its recording."""
    if not isinstance(told, dict):
        return None
    before, then = told.get("step_before_s"), told.get("step_recorded_s")
    if not isinstance(before, float) or not isinstance(then, float) or not (0 < before < 1e6 and 0 < then < 1e6):
        return None
    return before, then


def _ddp_buckets(told: Any) -> tuple[Filled, ...]:
    """What DDP's buckets held, by the same; none where anything about it is odd."""
    found = told.get("ddp_buckets") if isinstance(told, dict) else None
    filled = []
    for one in found if isinstance(found, list) else ():
        size, names = (one.get("bytes"), one.get("parameters")) if isinstance(one, dict) else (None, None)
        size = _whole(size, 1 << 50)
        if not size or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return ()
        parts = one.get("sizes")
        sizes = tuple(_whole(part, 1 << 50) or 0 for part in parts) if isinstance(parts, list) else ()
        filled.append(Filled(size, tuple(name[:LONGEST_NAME] for name in names), sizes))
    return tuple(filled)


def _step_collectives(told: Any) -> tuple[Collective, ...]:
    """The collectives of one step with their sizes, by the same."""
    found = told.get("collectives") if isinstance(told, dict) else None
    rows = [one for one in found[:_MOST_CALLS] if isinstance(one, dict)] if isinstance(found, list) else []
    return tuple(described(str(one.get("name"))[:LONGEST_NAME], noted(one)) for one in rows)


def _only_group(around: dict[str, Any]) -> Collective | None:
    """The group of a job that has one only, by the profile's own list of groups."""
    info = around.get("distributedInfo")
    groups = info.get("pg_config") if isinstance(info, dict) else None
    if not isinstance(groups, list) or len(groups) != 1 or not isinstance(groups[0], dict):
        return None
    ranks = groups[0].get("ranks")
    known = isinstance(ranks, list) and all(isinstance(r, int) for r in ranks)
    return Collective(
        "",
        group=str(groups[0].get("pg_name") or "0")[:120],
        desc=str(groups[0].get("pg_desc") or "")[:120],
        size=_whole(groups[0].get("pg_size"), _MOST_RANKS),
        ranks=tuple(ranks) if known and isinstance(ranks, list) else None,
    )


def rank_of_name(label: str) -> int | None:
    """The rank by the file's name: after a word that says so, or the only number in it."""
    name = label.rsplit("/", 1)[-1]
    said = _RANK.search(name)
    if said:
        return int(said[1])
    numbers = _NUMBER.findall(name.split(".json")[0].split(".pt.trace")[0])
    return int(numbers[0]) if len(numbers) == 1 and int(numbers[0]) < 4096 else None  # a larger one is a pid or a date


def _whole(value: Any, most: int) -> int | None:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < most else None
