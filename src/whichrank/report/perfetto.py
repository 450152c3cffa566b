"""A diagnosis for ui.perfetto.dev: ranks as processes, groups as tracks, collectives as slices, waits as arrows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import msgspec

from whichrank import __version__
from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding
from whichrank.model.verdict import Diagnosis
from whichrank.model.views import Slice, Track
from whichrank.report._words import counted, ranges, safe, shortened

NAME = "perfetto"
MOST_FLOWS, MOST_EVENTS = 1000, 1000
HOSTS = 1_000_000_000
"""A process number that no rank has: events of hosts, or of nobody in particular, are global."""
Event = dict[str, Any]
_Quoted = tuple[int, Ref, Finding]


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


@dataclass(frozen=True, slots=True)
class _Scene:
    """What all events need to know: the clock, the tracks, and which rank stands for which."""

    begin: int
    edge: int
    groups: dict[str, int]
    """Name of a process group -> number of its track."""
    drawn: dict[int, int]
    """Rank -> the rank that stands for it: ranks that did the same are one process."""

    @property
    def aside(self) -> int:
        """The number of the track for what is not a collective."""
        return len(self.groups) + 1

    def at(self, moment: int) -> float:
        return (moment - self.begin) / 1000


def _events(diagnosis: Diagnosis) -> Iterator[Event]:
    times = [t for track in diagnosis.tracks for s in track.slices for t in (s.start_ns, s.end_ns) if t is not None]
    quoted = list(_quoted(diagnosis))
    if not times and not quoted:
        return
    begin, last = min([*times, *(q[0] for q in quoted)]), max([*times, *(q[0] for q in quoted)])
    first = min(times, default=begin)
    names = sorted({one.group for track in diagnosis.tracks for one in track.slices})
    scene = _Scene(
        begin,
        last + max((last - first) // 5, 1_000),
        {name: i for i, name in enumerate(names, start=1)},
        {rank: track.ranks[0] for track in diagnosis.tracks for rank in track.ranks},
    )
    open_at: dict[int, tuple[int, int]] = {}  # of each rank drawn: track and begin of what it is in at the end
    for track in _tracks(diagnosis, quoted):
        yield from _titles(track, diagnosis, scene)
        for one in track.slices:
            yield _slice(track.ranks[0], one, scene)
            open_at[track.ranks[0]] = (scene.groups[one.group], one.start_ns)
        if not track.slices or track.slices[-1].end_ns is not None:
            yield (outside := _outside(track, diagnosis, scene))
            open_at[track.ranks[0]] = (scene.aside, scene.begin + round(outside["ts"] * 1000))
    yield from _flows(diagnosis, scene, open_at)
    yield from _instants(quoted, scene)


def _tracks(diagnosis: Diagnosis, quoted: Sequence[_Quoted]) -> Iterator[Track]:
    """Those of the diagnosis, and one for every rank that is waited for or quoted and recorded no collective."""
    yield from diagnosis.tracks
    seen = {rank for track in diagnosis.tracks for rank in track.ranks}
    who = diagnosis.verdict.culprits
    others = {*who.ranks, *who.candidates, *(ref.rank for _, ref, _ in quoted if ref.rank is not None)}
    others.update(rank for wait in diagnosis.waits[:MOST_FLOWS] for rank in wait.waits_for[:1])
    for rank in sorted(others - seen)[:MOST_EVENTS]:
        yield Track((rank,))


def _titles(track: Track, diagnosis: Diagnosis, scene: _Scene) -> Iterator[Event]:
    rank, who = track.ranks[0], diagnosis.verdict.culprits
    name = f"rank {rank}" if len(track.ranks) == 1 else f"{counted(len(track.ranks), 'rank')}: {ranges(track.ranks, 6)}"
    named = rank in who.ranks or rank in who.candidates
    base = {"ph": "M", "pid": rank, "ts": 0}
    yield {**base, "name": "process_name", "args": {"name": f"{name} ← the verdict" if named else name}}
    yield {**base, "name": "process_sort_index", "args": {"sort_index": -1 if named else rank}}
    for group in {one.group for one in track.slices}:
        title = {"name": safe(group) or "unnamed group"}
        yield {**base, "tid": scene.groups[group], "name": "thread_name", "args": title}
    yield {**base, "tid": scene.aside, "name": "thread_name", "args": {"name": "outside of collectives"}}


def _slice(rank: int, one: Slice, scene: _Scene) -> Event:
    end = scene.edge if one.end_ns is None else one.end_ns
    return {
        "ph": "X", "pid": rank, "tid": scene.groups[one.group], "name": safe(f"{one.op} {one.seq}"),
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
    awaited: dict[int, list[int]] = {}
    for wait in diagnosis.waits:
        mine = scene.drawn.get(wait.rank, wait.rank)
        other = next((to for to in (scene.drawn.get(r, r) for r in wait.waits_for) if to in open_at), None)
        if mine in open_at and other not in (None, mine) and mine not in awaited.setdefault(other, []):
            awaited[other].append(mine)
    number = 0
    for other, waiting in awaited.items():
        since = max(open_at[rank][1] for rank in (other, *waiting)) + 1
        yield {
            "ph": "X", "pid": other, "tid": scene.aside, "cat": "awaited", "ts": scene.at(since),
            "name": f"awaited by {counted(len(waiting), 'rank')} ({ranges(sorted(waiting), 6)})",
            "dur": (scene.edge - since) / 1000,
        }  # fmt: skip
        for rank in waiting[: MOST_FLOWS - number]:
            number += 1
            base = {"cat": "wait", "name": "waits for", "id": number}
            yield {**base, "ph": "s", "pid": rank, "tid": open_at[rank][0], "ts": scene.at(open_at[rank][1])}
            yield {**base, "ph": "f", "bp": "e", "pid": other, "tid": scene.aside, "ts": scene.at(since)}


def _quoted(diagnosis: Diagnosis) -> Iterator[_Quoted]:
    """What the findings quote, where the evidence says when."""
    refs = [(ref, found) for found in diagnosis.findings for ref in found.evidence if ref.time]
    for ref, found in refs[:MOST_EVENTS]:
        at = _nanoseconds(ref.time or "")
        if at is not None:
            yield at, ref, found


def _instants(quoted: Iterable[_Quoted], scene: _Scene) -> Iterator[Event]:
    for at, ref, found in quoted:
        rank = None if ref.rank is None else scene.drawn.get(ref.rank, ref.rank)
        place = {"pid": HOSTS, "s": "g"} if rank is None else {"pid": rank, "s": "p"}
        words = {"quote": shortened(ref.quote, 400), "source": ref.source, "host": ref.host or "", "cause": found.cause}
        yield {
            "ph": "i", **place, "tid": scene.aside, "name": safe(f"{found.code} {found.cause}"), "cat": "finding",
            "ts": scene.at(at), "args": {key: safe(value) for key, value in words.items()},
        }  # fmt: skip


def _nanoseconds(moment: str) -> int | None:
    try:
        parsed = datetime.fromisoformat(moment.replace("Z", "+00:00"))
    except ValueError:
        return None
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp() * 1e6) * 1000
