"""A diagnosis for ui.perfetto.dev: ranks as processes, groups as tracks, collectives as slices, waits as arrows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import msgspec

from whichrank import __version__
from whichrank.model.verdict import Diagnosis
from whichrank.model.views import Slice, Track
from whichrank.report._words import counted, ranges, safe, shortened

NAME = "perfetto"
MOST_FLOWS, MOST_EVENTS = 1000, 1000
Event = dict[str, Any]


def render(diagnosis: Diagnosis) -> Iterator[str]:
    """The JSON that Perfetto and chrome://tracing read; times are microseconds from the first collective drawn."""
    encode = msgspec.json.Encoder().encode
    about = {"written by": f"whichrank {__version__}", "verdict": safe(diagnosis.verdict.summary)}
    yield f'{{"displayTimeUnit":"ms","otherData":{encode(about).decode()},"traceEvents":[\n'
    before = ""
    for event in _events(diagnosis):
        yield before + encode(event).decode()
        before = ",\n"
    yield "\n]}\n"


def _events(diagnosis: Diagnosis) -> Iterator[Event]:
    times = [t for track in diagnosis.tracks for s in track.slices for t in (s.start_ns, s.end_ns) if t is not None]
    if not times:
        return
    begin, last = min(times), max(times)
    edge = last + max((last - begin) // 5, 1_000)
    groups = {name: i for i, name in enumerate(sorted({s.group for t in diagnosis.tracks for s in t.slices}), start=1)}
    for track in diagnosis.tracks:
        yield from _titles(track, diagnosis, groups)
        for one in track.slices:
            yield _slice(track.ranks[0], one, groups[one.group], begin, edge)
    yield from _flows(diagnosis, groups, begin)
    yield from _instants(diagnosis, begin)


def _titles(track: Track, diagnosis: Diagnosis, groups: dict[str, int]) -> Iterator[Event]:
    rank, who = track.ranks[0], diagnosis.verdict.culprits
    name = f"rank {rank}" if len(track.ranks) == 1 else f"{counted(len(track.ranks), 'rank')}: {ranges(track.ranks, 6)}"
    named = rank in who.ranks or rank in who.candidates
    base = {"ph": "M", "pid": rank, "ts": 0}
    yield {**base, "name": "process_name", "args": {"name": f"{name} ← the verdict" if named else name}}
    yield {**base, "name": "process_sort_index", "args": {"sort_index": -1 if named else rank}}
    for group in {one.group for one in track.slices}:
        title = {"name": safe(group) or "unnamed group"}
        yield {**base, "tid": groups[group], "name": "thread_name", "args": title}


def _slice(rank: int, one: Slice, tid: int, begin: int, edge: int) -> Event:
    end = edge if one.end_ns is None else one.end_ns
    return {
        "ph": "X", "pid": rank, "tid": tid, "name": safe(f"{one.op} {one.seq}"),
        "cat": "collective" if one.end_ns is not None else "unfinished",
        "ts": (one.start_ns - begin) / 1000, "dur": (end - one.start_ns) / 1000,
        "args": {"group": safe(one.group), "seq": one.seq, "code": safe(one.place), "finished": one.end_ns is not None},
    }  # fmt: skip


def _flows(diagnosis: Diagnosis, groups: dict[str, int], begin: int) -> Iterator[Event]:
    """An arrow from each rank that waits to the last thing that the rank it waits for did."""
    newest = {rank: track.slices[-1] for track in diagnosis.tracks if track.slices for rank in track.ranks[:1]}
    for number, wait in enumerate(diagnosis.waits[:MOST_FLOWS]):
        mine = newest.get(wait.rank)
        other = next((rank for rank in wait.waits_for if rank in newest), None)
        if mine is None or other is None:
            continue
        theirs = newest[other]
        base = {"cat": "wait", "name": "waits for", "id": number}
        here, there = groups[mine.group], groups[theirs.group]
        yield {**base, "ph": "s", "pid": wait.rank, "tid": here, "ts": (mine.start_ns - begin) / 1000}
        at = max(mine.start_ns, theirs.start_ns) - begin
        yield {**base, "ph": "f", "bp": "e", "pid": other, "tid": there, "ts": at / 1000}


def _instants(diagnosis: Diagnosis, begin: int) -> Iterator[Event]:
    """What the findings quote, where the evidence says when."""
    drawn = {track.ranks[0] for track in diagnosis.tracks}
    refs = [(ref, found) for found in diagnosis.findings for ref in found.evidence if ref.time]
    for ref, found in refs[:MOST_EVENTS]:
        at = _nanoseconds(ref.time or "")
        if at is None:
            continue
        place = {"pid": ref.rank, "s": "p"} if ref.rank in drawn else {"pid": min(drawn), "s": "g"}
        words = {"quote": shortened(ref.quote, 400), "source": ref.source, "host": ref.host or ""}
        yield {
            "ph": "i", **place, "tid": 0, "name": found.code, "cat": "finding", "ts": (at - begin) / 1000,
            "args": {key: safe(value) for key, value in words.items()},
        }  # fmt: skip


def _nanoseconds(moment: str) -> int | None:
    try:
        parsed = datetime.fromisoformat(moment.replace("Z", "+00:00"))
    except ValueError:
        return None
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp() * 1e6) * 1000
