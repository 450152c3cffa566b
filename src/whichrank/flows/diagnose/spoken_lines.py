"""The lines of a job's output with who printed them, and what ranks said alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from whichrank.evidence.text.own_lines import is_own
from whichrank.evidence.text.path_hint import hint_of_path
from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import clock_of
from whichrank.evidence.text.prefixes.wrapped import plain
from whichrank.evidence.text.tail import tail
from whichrank.evidence.text.text_file import is_text
from whichrank.model.contracts import Item
from whichrank.timeline.identity.who import People, short_name

_LARGEST = 4 << 20
"""Of a longer file the end is read."""
_LONGEST, _MOST = 400, 60_000
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_OWN_FILE = b'{"whichrank_'
"""What the tool's own JSON begins with: nobody said it."""
_BEGINNING = 32
"""Of a line, without its numbers: lines that begin alike tell of the same thing."""
_TOO_LATE = (b"Watchdog caught collective", b"Received a dump signal", b"Timed out waiting", b"terminate called after")
"""What ranks print when the others have waited long enough: what comes after it is a consequence."""
COUNT = re.compile(r"(?<![\w./:-])(\d{1,9}) ?/ ?(\d{1,9})(?![\w./:])")
"""How far somebody is: `12/40`."""
MENTION = re.compile(r"(?i)(?<![\w-])rank[ _-]?(\d{1,6})(?!\d)")

_OF_SERVERS = re.compile(r"\bserver\b|Lustre|ceph|\bmds\d")
_FRAME = re.compile(r'\s{0,40}File "|\s{0,8}at |#\d{1,3} |\s{0,40}\S{1,200} \([^()]{1,300}:\d{1,9}\)')
"""A line of a stack: nobody said it."""


class Speaker(NamedTuple):
    """A rank, or where only that is known a host or a task of `srun`; or nobody."""

    kind: str = ""
    name: object = None


class Line(NamedTuple):
    """One line without its prefix."""

    source: str
    number: int
    text: str
    speaker: Speaker
    shape: str
    """The text without its numbers."""

    @property
    def beginning(self) -> str:
        return self.shape[:_BEGINNING]

    @property
    def numbers(self) -> tuple[str, ...]:
        return tuple(_NUMBERS.findall(self.text[:200]))


class SpokenLines:
    """All lines before the first timeout of their file."""

    def __init__(self, items: Iterable[Item], people: People, world: int) -> None:
        self._people = people
        self.lines: list[Line] = []
        self.mentions: list[Line] = []
        """Lines of logs in which no rank speaks, about a rank."""
        self.places: dict[int, set[Speaker]] = {}
        """By rank: the hosts and tasks that it printed as."""
        for item in items:
            self._hear(item)
        self.lines = _lasting(self.lines)
        self._tasks_as_ranks(world)
        self.speakers: dict[str, set[Speaker]] = {}
        """By shape."""
        self.told: dict[str, dict[object, tuple[str, ...]]] = {}
        """By beginning and rank: the numbers in it; none where the rank said it more than once."""
        self.rounds: dict[str, dict[object, list[Line]]] = {}
        """By beginning and rank: all that the rank said so, in its order."""
        self.counted: dict[str, dict[object, tuple[Line, int, int]]] = {}
        """By beginning and rank: the last line in which it counts, how far it is, and how far it has to go."""
        for line in self.lines:
            self.speakers.setdefault(line.shape, set()).add(line.speaker)
            if line.speaker.kind == "rank":
                by_rank = self.told.setdefault(line.beginning, {})
                by_rank[line.speaker.name] = () if line.speaker.name in by_rank else line.numbers
                self.rounds.setdefault(line.beginning, {}).setdefault(line.speaker.name, []).append(line)
                if "/" in line.text and (count := COUNT.search(line.text)):
                    done = (line, int(count[1]), int(count[2]))
                    self.counted.setdefault(line.beginning, {})[line.speaker.name] = done

    @property
    def ranks(self) -> set[object]:
        """Those that said anything."""
        return {rank for by_rank in self.told.values() for rank in by_rank}

    def hosts(self) -> set[Speaker]:
        """Those that said anything, and of which no rank did."""
        spoken = {line.speaker for line in self.lines if line.speaker.kind == "host"}
        return spoken - {place for places in self.places.values() for place in places}

    def _hear(self, item: Item) -> None:
        try:
            first, data = tail(item, _LARGEST)
        except OSError:
            return
        if not is_text(data[:4096]) or data.startswith(_OWN_FILE):
            return
        clock, hint, too_late, of_ranks = clock_of(item), hint_of_path(item.label), False, False
        said: list[Line] = []
        for number, line in enumerate(data.split(b"\n"), first):
            if len(self.lines) + len(said) >= _MOST:
                break
            if is_own(line):
                continue
            voice = listen(line, clock)
            if not voice.text or _FRAME.match(voice.text):
                continue
            rank = voice.rank if voice.rank is not None else self._people.rank_of(voice.pid, voice.host)
            rank = rank if rank is not None else hint.rank
            places = _places(voice.host, voice.task)
            of_ranks = of_ranks or rank is not None or voice.task is not None
            if rank is not None:
                self.places.setdefault(rank, set()).update(places)
            too_late = too_late or any(map(line.__contains__, _TOO_LATE))
            if not too_late:
                speaker = Speaker("rank", rank) if rank is not None else next(iter(places), Speaker())
                words = plain(voice.text)
                said.append(Line(item.label, number, words[:_LONGEST], speaker, _NUMBERS.sub("0", words[:200])))
        if of_ranks:
            self.lines += [line for line in said if line.speaker.kind]
        else:  # a log of hosts alone: its own rules know which of its lines are of this run, unless they name a rank
            self.mentions += [line for line in said if MENTION.search(line.text)]

    def _tasks_as_ranks(self, world: int) -> None:
        """Where there are as many tasks as ranks, a task is a rank."""
        tasks = {line.speaker.name for line in self.lines if line.speaker.kind == "task"}
        if world > 1 and tasks >= set(range(world)):
            self.lines = [
                line._replace(speaker=Speaker("rank", line.speaker.name)) if line.speaker.kind == "task" else line
                for line in self.lines
            ]


def _lasting(lines: Sequence[Line]) -> list[Line]:
    """Without what somebody said of a file server that answered again before anything timed out."""
    waiting: dict[tuple[Speaker, object], list[Line]] = {}
    over: set[Line] = set()
    of_servers = [line for line in lines if _OF_SERVERS.search(line.text)]
    if not of_servers:
        return list(lines)
    from whichrank.evidence.readers.kernel_log.lines import server_said  # many patterns: only where one is spoken of

    for line in of_servers:
        told = server_said(line.text)
        if told is None:
            continue
        said = waiting.setdefault((line.speaker, told.data["server"]), [])
        if told.kind == "server_back":
            over.update(said)
            said.clear()
        else:
            said.append(line)
    return [line for line in lines if line not in over] if over else list(lines)


def _places(host: str | None, task: int | None) -> list[Speaker]:
    named = [Speaker("host", short_name(host))] if host else []
    return [*named, Speaker("task", task)] if task is not None else named
