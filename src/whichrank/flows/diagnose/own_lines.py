"""Where a rank is late and nothing says why: what it, or its host, printed before that, and no other rank did."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from whichrank.evidence.text.prefixes import clock_of, hint_of_path, listen
from whichrank.evidence.text.tail import tail
from whichrank.evidence.text.text_file import is_text
from whichrank.facts.messages import recognise
from whichrank.facts.phases import activity_in
from whichrank.facts.taxonomy import causes
from whichrank.model.contracts import Item
from whichrank.model.evidence import Ref
from whichrank.model.verdict import Verdict
from whichrank.records.own_line import OwnLine
from whichrank.timeline.case import Case
from whichrank.timeline.identity.who import short_name

_LATE = ("rank-stuck-in-user-code",)
"""Besides the generic causes: it says that a rank is held up, not by what."""
_LARGEST = 4 << 20
"""Of a longer file the end is read."""
_LONGEST = 400
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_NOT_SAID = re.compile(r'\s{0,40}File "|Traceback|\s{0,8}at |#\d{1,3} |NCCL INFO|\[[Rr]ank \d+\] ')
"""Frames, and what torch and NCCL print on their own account."""
_TOO_LATE = (b"Watchdog caught collective", b"Received a dump signal", b"Timed out waiting", b"terminate called after")
"""What ranks print when the others have waited long enough: what comes after it is a consequence."""
_MOST_RANKS = 8
_MOST_LINES = 60_000

Speaker = tuple[str, object]


@dataclass(slots=True)
class _Heard:
    """The lines of all files with who printed them."""

    lines: list[tuple[str, int, str, Speaker]] = field(default_factory=list)
    speakers: dict[str, set[Speaker]] = field(default_factory=dict)
    places: dict[int, set[Speaker]] = field(default_factory=dict)
    """By rank: the hosts and tasks that it printed as."""


def own_lines(items: Iterable[Item], case: Case, verdict: Verdict) -> list[OwnLine]:
    """What only the late ranks or their hosts printed and what tells what they were in, the last first."""
    ranks = verdict.culprits.ranks
    if len(ranks) > _MOST_RANKS or not (causes()[verdict.cause].role == "generic" or verdict.cause in _LATE):
        return []
    heard = _Heard()
    for item in items:
        _hear(item, heard)
    found = []
    for rank in ranks:
        host = case.people.host_of(rank)
        places = heard.places.get(rank, set()) | ({("host", short_name(host))} if host else set())
        places = {place for place in places if not _shared(place, heard, ranks)}
        for label, number, text, speaker in reversed(heard.lines):
            if (speaker == ("rank", rank) or speaker in places) and (cause := _told(text, speaker, heard)):
                quoted = Ref(label, f"line {number}", text.strip()[:300], rank, host)
                found.append(OwnLine(rank, cause, quoted, number, speaker != ("rank", rank)))
    return found


def _hear(item: Item, heard: _Heard) -> None:
    try:
        first, data = tail(item, _LARGEST)
    except OSError:
        return
    if not is_text(data[:4096]):
        return
    clock, hint, too_late = clock_of(item), hint_of_path(item.label), False
    for number, line in enumerate(data.split(b"\n"), first):
        if len(heard.lines) >= _MOST_LINES:
            return
        voice = listen(line, clock)
        rank = voice.rank if voice.rank is not None else hint.rank
        places = _places(voice.host, voice.task)
        if rank is not None:
            heard.places.setdefault(rank, set()).update(places)
        too_late = too_late or any(map(line.__contains__, _TOO_LATE))
        if too_late:
            continue
        speakers: list[Speaker] = [("rank", rank)] if rank is not None else places
        for speaker in speakers[:1]:
            text = voice.text[:_LONGEST]
            heard.lines.append((item.label, number, text, speaker))
            heard.speakers.setdefault(_shape(text), set()).add(speaker)


def _places(host: str | None, task: int | None) -> list[Speaker]:
    named: list[Speaker] = [("host", short_name(host))] if host else []
    return [*named, ("task", task)] if task is not None else named


def _shared(place: Speaker, heard: _Heard, ranks: Collection[int]) -> bool:
    """Whether every rank is there: then it tells nothing of one."""
    others = [places for rank, places in heard.places.items() if rank not in ranks]
    return bool(others) and all(place in places for places in others)


def _told(text: str, speaker: Speaker, heard: _Heard) -> str | None:
    """The cause that an own line speaks of."""
    if heard.speakers[_shape(text)] != {speaker} or _NOT_SAID.match(text):
        return None
    known = [s for s, _ in recognise(text) if s.role in ("root", "activity") and s.cause in causes()]
    return known[0].cause if known else activity_in(text)


def _shape(text: str) -> str:
    return _NUMBERS.sub("0", text[:200])
