"""A diagnosis for ui.perfetto.dev: ranks as processes, groups as tracks, collectives as slices, waits as arrows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

import msgspec
from msgspec import Struct

from whichrank import __version__
from whichrank.model.verdict import Diagnosis
from whichrank.model.views import Slice, Track
from whichrank.report._words import counted, ranges, safe, shortened

NAME = "perfetto"
MOST_FLOWS, MOST_EVENTS = 1000, 1000
LANES = 64
"""Tracks per process group."""
HOSTS = 1_000_000_000
"""Numbers of processes that no rank has: those that stand for hosts."""
Event = dict[str, Any]


def render(diagnosis: Diagnosis) -> Iterator[str]:
    """The JSON that Perfetto and chrome://tracing read; times are microseconds from the first event drawn."""
    encode = msgspec.json.Encoder().encode
    about = {"written by": f"whichrank {__version__}", "verdict": safe(diagnosis.verdict.summary)}
    yield f'{{"displayTimeUnit":"ms","otherData":{encode(about).decode()},"traceEvents":[\n'
    before = ""
    for event in _events(diagnosis):
        yield before + encode(event).decode()
        before = ",\n"
    yield "\n]}\n"


class _Instant(Struct, frozen=True):
    time_ns: int
    rank: int | None
    host: str
    name: str
    kind: str
    source: str
    quote: str


class _Scene(Struct, frozen=True):
    """What all events need to know: the clock, the tracks, and which rank stands for which."""

    begin: int
    edge: int
    groups: list[str]
    """The names of the process groups."""
    drawn: dict[int, int]
    """Rank -> the rank that stands for it: ranks that did the same are one process."""

    @property
    def aside(self) -> int:
        """The number of the track for what is not a collective."""
        return len(self.groups) * LANES + 1

    def tid(self, group: str, lane: int) -> int:
        """The number of a group's track: 0 is no thread to Perfetto."""
        return self.groups.index(group) * LANES + lane + 1

    def at(self, moment: int) -> float:
        return (moment - self.begin) / 1000


def _events(diagnosis: Diagnosis) -> Iterator[Event]:
    times = [t for track in diagnosis.tracks for s in track.slices for t in (s.start_ns, s.end_ns) if t is not None]
    happened = list(_happened(diagnosis))[:MOST_EVENTS]
    moments = [*times, *(one.time_ns for one in happened)]
    if not moments:
        return
    begin, last = min(moments), max(moments)
    first = min(times, default=begin)
    scene = _Scene(
        begin,
        last + max((last - first) // 5, 1_000),
        sorted({one.group for track in diagnosis.tracks for one in track.slices}),
        {rank: track.ranks[0] for track in diagnosis.tracks for rank in track.ranks},
    )
    open_at: dict[int, tuple[int, int]] = {}  # of each rank drawn: track and begin of what it has not got past
    for track in _tracks(diagnosis, happened):
        rank, lanes = track.ranks[0], _lanes(track.slices)
        yield from _titles(track, diagnosis, scene, lanes)
        for one, lane in zip(track.slices, lanes, strict=True):
            tid = scene.tid(one.group, lane)
            yield _slice(rank, one, tid, scene)
            if one.end_ns is None:
                open_at.setdefault(rank, (tid, one.start_ns))
        if rank not in open_at:
            yield (outside := _outside(track, diagnosis, scene))
            open_at[rank] = (scene.aside, scene.begin + round(outside["ts"] * 1000))
    yield from _flows(diagnosis, scene, open_at)
    yield from _instants(happened, scene)


def _tracks(diagnosis: Diagnosis, happened: Sequence[_Instant]) -> Iterator[Track]:
    """Those of the diagnosis, and one for every rank that is waited for or spoken of and recorded no collective."""
    yield from diagnosis.tracks
    seen = {rank for track in diagnosis.tracks for rank in track.ranks}
    who = diagnosis.verdict.culprits
    others = {*who.ranks, *who.candidates, *(one.rank for one in happened if one.rank is not None)}
    others.update(rank for wait in diagnosis.waits[:MOST_FLOWS] for rank in wait.waits_for[:1])
    for rank in sorted(others - seen)[:MOST_EVENTS]:
        yield Track((rank,))


def _lanes(slices: Sequence[Slice]) -> list[int]:
    """Side by side where collectives of a group overlap in time: Perfetto drops what overlaps on one track."""
    ends: dict[str, list[int | None]] = {}
    found = []
    for one in slices:
        taken = ends.setdefault(one.group, [])
        lane = next((i for i, end in enumerate(taken) if end is not None and end <= one.start_ns), len(taken))
        lane = min(lane, LANES - 1)
        taken[lane:] = [one.end_ns, *taken[lane + 1 :]]
        found.append(lane)
    return found


def _titles(track: Track, diagnosis: Diagnosis, scene: _Scene, lanes: Sequence[int]) -> Iterator[Event]:
    rank, who = track.ranks[0], diagnosis.verdict.culprits
    name = f"rank {rank}" if len(track.ranks) == 1 else f"{counted(len(track.ranks), 'rank')}: {ranges(track.ranks, 6)}"
    named = rank in who.ranks or rank in who.candidates
    base = {"ph": "M", "pid": rank, "ts": 0}
    yield {**base, "name": "process_name", "args": {"name": f"{name} ← the verdict" if named else name}}
    yield {**base, "name": "process_sort_index", "args": {"sort_index": -1 if named else rank}}
    for group, lane in sorted({(one.group, lane) for one, lane in zip(track.slices, lanes, strict=True)}):
        title = (safe(group) or "unnamed group") + (f", at the same time ({lane + 1})" if lane else "")
        yield {**base, "tid": scene.tid(group, lane), "name": "thread_name", "args": {"name": title}}
    yield {**base, "tid": scene.aside, "name": "thread_name", "args": {"name": "outside of collectives"}}


def _slice(rank: int, one: Slice, tid: int, scene: _Scene) -> Event:
    end = scene.edge if one.end_ns is None else one.end_ns
    return {
        "ph": "X", "pid": rank, "tid": tid, "name": safe(f"{one.op} {one.seq}"),
        "cat": "collective" if one.end_ns is not None else "unfinished",
        "ts": scene.at(one.start_ns), "dur": (end - one.start_ns) / 1000,
        "args": {"group": safe(one.group), "seq": one.seq, "code": safe(one.place), "finished": one.end_ns is not None},
    }  # fmt: skip


def _outside(track: Track, diagnosis: Diagnosis, scene: _Scene) -> Event:
    """What a rank does that is in no collective at the end: by its stack, or by its state."""
    rank, last = track.ranks[0], max((one.end_ns or one.start_ns for one in track.slices), default=scene.begin)
    stack = next((stand for stand in diagnosis.standings if rank in stand.ranks), None)
    state = next((info.state for info in diagnosis.ranks if info.rank == rank), "unknown")
    if stack is not None:
        name = f"{stack.doing} at {stack.place}" if stack.doing else stack.place
    elif state in ("dead", "absent", "frozen"):
        name = state
    else:
        name = (
            f"nothing after {track.slices[-1].op} {track.slices[-1].seq}" if track.slices else "no collective recorded"
        )
    return {
        "ph": "X", "pid": rank, "tid": scene.aside, "name": safe(name), "cat": "outside",
        "ts": scene.at(last), "dur": (scene.edge - last) / 1000, "args": {"state": state},
    }  # fmt: skip


def _flows(diagnosis: Diagnosis, scene: _Scene, open_at: dict[int, tuple[int, int]]) -> Iterator[Event]:
    """An arrow from each rank that waits to the rank it waits for.

    Perfetto lets arrows go from the slice that began earlier to the later one, whatever the file says. So they end at a
    slice of their own, which begins when the last of them began to wait.
    """
    awaited: dict[int, dict[int, list[int]]] = {}  # rank -> those drawn that wait for it -> all that they stand for
    for wait in diagnosis.waits:
        mine = scene.drawn.get(wait.rank, wait.rank)
        other = next((to for to in (scene.drawn.get(r, r) for r in wait.waits_for) if to in open_at), None)
        if mine in open_at and other is not None and other != mine:
            awaited.setdefault(other, {}).setdefault(mine, []).append(wait.rank)
    number = 0
    for other, waiting in awaited.items():
        since = max(open_at[rank][1] for rank in (other, *waiting)) + 1
        ranks = sorted({rank for all_ in waiting.values() for rank in all_})
        yield {
            "ph": "X", "pid": other, "tid": scene.aside, "cat": "awaited", "ts": scene.at(since),
            "name": f"awaited by {counted(len(ranks), 'rank')} ({ranges(ranks, 6)})",
            "dur": (scene.edge - since) / 1000,
        }  # fmt: skip
        for rank in list(waiting)[: MOST_FLOWS - number]:
            number += 1
            base = {"cat": "wait", "name": "waits for", "id": number}
            yield {**base, "ph": "s", "pid": rank, "tid": open_at[rank][0], "ts": scene.at(open_at[rank][1])}
            yield {**base, "ph": "f", "bp": "e", "pid": other, "tid": scene.aside, "ts": scene.at(since)}


def _happened(diagnosis: Diagnosis) -> Iterator[_Instant]:
    """What the findings quote, where the evidence says when; then what else happened."""
    told = set()
    for found in diagnosis.findings:
        for ref in found.evidence:
            at = _nanoseconds(ref.time) if ref.time else None
            if at is not None:
                told.add((ref.source, ref.locator))
                name = f"{found.code} {found.cause}"
                yield _Instant(at, ref.rank, ref.host or "", name, "finding", ref.source, ref.quote)
    for one in diagnosis.moments:
        if (one.source, one.locator) not in told:
            rank, kind = one.ranks[0] if one.ranks else None, "kernel" if one.of_host else "job"
            yield _Instant(one.time_ns, rank, one.host, one.what, kind, one.source, one.quote)


def _instants(happened: Sequence[_Instant], scene: _Scene) -> Iterator[Event]:
    """Events of a rank on its process, those of a host on one that stands for the host."""
    hosts = sorted({one.host for one in happened if one.rank is None})
    for number, host in enumerate(hosts):
        title = {"ph": "M", "pid": HOSTS + number, "ts": 0, "name": "process_name"}
        yield {**title, "args": {"name": safe(f"host {host}" if host else "events of the job")}}
    for one in happened:
        pid = HOSTS + hosts.index(one.host) if one.rank is None else scene.drawn.get(one.rank, one.rank)
        words = {"quote": shortened(one.quote, 400), "source": one.source, "host": one.host}
        yield {
            "ph": "i", "pid": pid, "s": "p", "tid": scene.aside, "name": safe(one.name), "cat": one.kind,
            "ts": scene.at(one.time_ns), "args": {key: safe(value) for key, value in words.items()},
        }  # fmt: skip


def _nanoseconds(moment: str) -> int | None:
    try:
        parsed = datetime.fromisoformat(moment.replace("Z", "+00:00"))
    except ValueError:
        return None
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp() * 1e6) * 1000
