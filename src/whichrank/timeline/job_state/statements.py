"""Statements of failure from all logs: what was said, whose it is, and whether the training survived it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from whichrank.facts.messages import REPORT, signatures
from whichrank.facts.taxonomy import causes
from whichrank.model.evidence import Ref
from whichrank.model.findings import CodePlace
from whichrank.model.grades import Grade, Kind
from whichrank.records.dump import Frame
from whichrank.records.events.base import Event
from whichrank.records.events.collectives import MonitoredBarrierFailed
from whichrank.records.events.communication import GlooInitError, GlooTimeout, NcclError
from whichrank.records.events.launchers import ElasticFailure, ElasticRestart, HostOutOfMemory, JobEnded, ProcessExit
from whichrank.records.events.messages import KnownMessage
from whichrank.records.events.processes import CudaError, NativeCrash, Traceback
from whichrank.records.events.startup import CommInit, GroupInit, InitError, RendezvousError, StoreError
from whichrank.records.events.watchdog import WatchdogTerminated, WatchdogTimeout
from whichrank.records.log import Progress
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state.interrupted import waits as interrupted_waits
from whichrank.timeline.job_state.trials import said_category

if TYPE_CHECKING:
    from whichrank.records.nccl import NcclProcess, NcclWarning
    from whichrank.timeline.case import Case

TOGETHER_NS = 10_000_000_000
_STEP = re.compile(r"\b(?:global_step|iteration|step|iter)\b[ #:=]{1,3}(\d{1,12})")

"""Ranks that fail within this time fail together: C++ stamps are good to a second, hosts' clocks to some."""

_STEPS_AFTER = 3

_STEPS_AFTER_BY_ANYBODY = 20

"""Other ranks print some steps more before they notice a loss; nobody prints twenty without the lost one."""

_SPAWN_LINES = 60

"""A traceback of `spawn` and the message below it are not longer than this."""

_STATEMENTS: tuple[type[Event], ...] = (
    Traceback, NcclError, StoreError, InitError, RendezvousError, GlooInitError, CudaError,
    NativeCrash, WatchdogTerminated, ElasticFailure,
)  # fmt: skip

_ENDINGS: tuple[type[Event], ...] = (
    Traceback, NativeCrash, CudaError, ElasticFailure, ProcessExit, JobEnded, WatchdogTerminated,
    HostOutOfMemory, NcclError,
)  # fmt: skip

_NODE_LOST = "k8s-node-lost"
TIMED_OUT: tuple[type[Event], ...] = (WatchdogTimeout, GlooTimeout, MonitoredBarrierFailed)

"""What says that a rank waited for others until it gave up."""

_GAVE_UP = re.compile(r"(?i)\btim(?:ed|ing) ?out\b|Timeout|deadline.exceeded")
"""What an exception says that only ended a wait."""

_LIBRARIES = ("site-packages", "dist-packages", "/lib/python", "<frozen", "<string>", "importlib")


E = TypeVar("E", bound=Event)


_OF_MANY = "x across cluster]"
"""Ray's `[repeated 15x across cluster]`."""


class Statement(Struct, frozen=True):
    """One statement of failure, with the rank that it is about where that is known."""

    text: str
    ref: Ref
    rank: int | None = None
    local_rank: int | None = None
    time_ns: int | None = None
    about_ns: int | None = None
    """The statement's time, or else the newest time before it in its file."""
    host: str | None = None
    code: CodePlace | None = None
    event: Event | None = None
    grade: Grade | None = None
    """What a known message does for its cause."""
    kind: Kind = "messages"


class Index:
    """What makes telling quick whose the events of a case are."""

    def __init__(self, case: Case) -> None:
        self.progress = {progress.source: progress for progress in case.progress}
        self.spawned: dict[str, list[Event]] = {}
        for ended in case.events(ProcessExit):
            if ended.by == "spawn":
                self.spawned.setdefault(ended.ref.source, []).append(ended)
        self.survived: dict[tuple[str, int, int | None], bool] = {}
        # Thousands of ranks say the same: their words are searched once.
        self.statements: dict[str, list[tuple[int, Event]]] = {}
        for number, event in enumerate(e for kind in _STATEMENTS for e in case.events(kind)):
            self.statements.setdefault(event.words, []).append((number, event))
        self._messages: dict[int, Statement] = {}
        self.of_events: dict[int, Statement] = {}
        """By the id of the event, which its statement holds."""
        self.by_local: dict[int, list[int]] = {}
        for process in case.people.by_rank.values():
            if process.local_rank is not None:
                self.by_local.setdefault(process.local_rank, []).append(process.rank)
        seen = [_with_rank(case, sighting, self.by_local) for sighting in case.sightings]
        self.sightings: dict[str, list[tuple[int, KnownMessage]]] = {}
        for number, sighting in enumerate(seen):
            self.sightings.setdefault(sighting.signature, []).append((number, sighting))
        self.said_by: dict[object, set[int | None]] = defaultdict(set)
        for event in (*case.log_events, *seen):
            self.said_by[_same(event)].add(told_rank(event))
        table = signatures() if seen else {}  # a tenth of the time of a short run
        self.roots = [s for s in seen if table[s.signature].role == "root"]
        # Most phrases are nowhere: that is seen in one search.
        self.words_of_roots = "\n".join({s.ref.quote for s in self.roots})
        self.words_of_nccl = "\n".join({warning.text for process in case.nccl for warning in process.warnings})
        self.said_to_hang = [
            s for s in seen if table[s.signature].library == REPORT and table["told-hang"].affirmed(s.ref.quote)
        ]

    def statement(self, number: int, message: KnownMessage) -> Statement:
        """What a message says, made once: many rules ask for the same ones."""
        found = self._messages.get(number)
        if found is None:
            found = self._messages[number] = of_message(message)
        return found


def heard(case: Case) -> bool:
    """Whether there is any log to judge by."""
    return bool(case.log_events or case.nccl or case.sightings)


def of_kind(case: Case, *kinds: type[E], where: Callable[[E], bool] = lambda _: True) -> list[Statement]:
    """Events of these kinds that were not survived, as statements; of each kind in order of time."""
    found = (event for kind in kinds for event in case.events(kind) if where(event))
    return [statement(case, event) for event in found if not dismissed(case, event)]


def said(case: Case, *phrases: str) -> list[Statement]:
    """Every statement of failure that holds one of these phrases: of torch, of Python or of NCCL."""
    hits = [
        numbered
        for words, spoken in case.index.statements.items()
        if any(phrase in words for phrase in phrases)
        for numbered in spoken
    ]
    found = [statement(case, event) for _, event in sorted(hits, key=lambda hit: hit[0]) if not survived(case, event)]
    found += said_by_nccl(case, *phrases)
    return found + _said_elsewhere(case, phrases, {(s.ref.source, s.ref.locator) for s in found})


def _said_elsewhere(case: Case, phrases: Sequence[str], told: set[tuple[str, str]]) -> list[Statement]:
    """The same in words of libraries that no other reader knows, or without the prefix that it goes by."""
    phrases = [phrase for phrase in phrases if phrase in case.index.words_of_roots]
    if not phrases:
        return []
    return [
        Statement(s.ref.quote, s.ref, s.rank, s.local_rank, s.time_ns, s.about_ns, s.host)
        for s in case.index.roots
        if any(phrase in s.ref.quote for phrase in phrases)
        and (s.ref.source, s.ref.locator) not in told
        and not dismissed(case, s)
    ]


def known(case: Case, cause: str) -> list[Statement]:
    """Messages of the knowledge base that tell this cause and after which training did not simply go on."""
    table = signatures()
    return [
        of_message(s, table[s.signature].grade)
        for s in case.index.roots
        if table[s.signature].cause == cause and not dismissed(case, s)
    ]


def of_message(s: KnownMessage, grade: Grade | None = None) -> Statement:
    rank = told_rank(s)
    same = (s.ref.rank, s.ref.host) == (rank, s.host)  # mostly, and replacing costs as much as all else
    ref = s.ref if same else replace(s.ref, rank=rank, host=s.host)
    kind: Kind = "reports" if s.retold or signatures()[s.signature].library == REPORT else "messages"
    return Statement(s.words, ref, rank, s.local_rank, s.time_ns, s.about_ns, s.host, grade=grade, kind=kind)


def beside(signs: Sequence[Statement], more: Sequence[Statement]) -> list[Statement]:
    """Those of `more` that stand at lines of which `signs` do not speak yet."""
    told = {(s.ref.source, s.ref.locator) for s in signs}
    return [s for s in more if (s.ref.source, s.ref.locator) not in told]


def told_rank(event: Event) -> int | None:
    """The rank that a message itself names as the one it is about, or that of the process that printed it."""
    named = event.captures.get("culprit", "") if isinstance(event, KnownMessage) else ""
    return int(named) if named else event.rank


def surest(signs: Sequence[Statement]) -> Grade:
    """What the strongest of these known messages does for its cause."""
    return max((s.grade for s in signs if s.grade is not None), default=Grade.HINTS)


def said_by_nccl(case: Case, *phrases: str) -> list[Statement]:
    """Warnings of NCCL that hold one of these phrases."""
    there = [phrase for phrase in phrases if phrase in case.index.words_of_nccl]
    if not there:
        return []
    return [
        nccl_statement(case, process, warning)
        for process in case.nccl
        for warning in process.warnings
        if any(phrase in warning.text for phrase in there)
    ]


def statement(case: Case, event: Event) -> Statement:
    """What an event says, made once: many rules ask for the same ones."""
    found = case.index.of_events.get(id(event))
    if found is None:
        rank = rank_of(case, event)
        local = event.local_rank if event.local_rank is not None else _spawned(case, event)
        code = _place(event.frames, rank)
        found = Statement(event.words, event.ref, rank, local, event.time_ns, event.about_ns, event.host, code, event)
        case.index.of_events[id(event)] = found
    return found


def nccl_statement(case: Case, process: NcclProcess, warning: NcclWarning) -> Statement:
    rank = case.people.rank_of(process.pid, process.host)
    ref = Ref(process.source, f"line {warning.line}", warning.text[:400], rank, process.host, warning.time)
    return Statement(warning.text, ref, rank, host=process.host)


def _place(frames: Sequence[Frame], rank: int | None) -> CodePlace | None:
    """The innermost line of the training's own code; `frames` are outermost first."""
    own = [frame for frame in frames if not any(part in frame.file for part in _LIBRARIES)]
    chosen = own[-1] if own else frames[-1] if frames else None
    return CodePlace(chosen.file, chosen.line, chosen.function, rank) if chosen else None


def rank_of(case: Case, event: Event) -> int | None:
    """The global rank of an event; of a local rank only where one rank has it. Ray prints once what many said."""
    if _OF_MANY in event.ref.quote:
        return None
    if event.rank is not None:
        return event.rank
    local = event.local_rank if event.local_rank is not None else _spawned(case, event)
    if local is None:
        return _of_gpu(case, event)
    return _of_local(case, local, event.host, case.index.by_local)


def _of_local(case: Case, local: int, host: str | None, by_local: Mapping[int, Sequence[int]]) -> int | None:
    fitting = [rank for rank in by_local.get(local, ()) if host in (None, case.people.host_of(rank))]
    if not fitting and case.on_one_node and local < case.world:
        return local
    return fitting[0] if len(fitting) == 1 else None


def _with_rank(case: Case, message: KnownMessage, by_local: Mapping[int, Sequence[int]]) -> KnownMessage:
    """The same of the rank that a launcher's local number means; of nobody where Ray prints once what many said."""
    if _OF_MANY in message.ref.quote:
        return replace(message, rank=None, local_rank=None, host=None)
    if message.rank is not None or message.local_rank is None:
        return message
    return replace(message, rank=_of_local(case, message.local_rank, message.host, by_local))


def _of_gpu(case: Case, event: Event) -> int | None:
    """The rank on the GPU of which CUDA speaks. Number 0 is that of every process that sees only its own GPU."""
    if not isinstance(event, CudaError) or not event.gpu or event.host is None:
        return None
    ranks = case.hardware.ranks_at(event.host, event.gpu)
    return ranks[0] if len(ranks) == 1 else None


def _spawned(case: Case, event: Event) -> int | None:
    """The process that `torch.multiprocessing.spawn` names in the line above a traceback."""
    told = [e for e in case.index.spawned.get(event.ref.source, ()) if 0 <= event.line - e.line <= _SPAWN_LINES]
    return told[-1].local_rank if told else None


def survived(case: Case, event: Event) -> bool:
    """Whether training went on after it: then it was caught, retried, or only told."""
    return survived_at(case, event.ref.source, event.line, event.rank)


def dismissed(case: Case, event: Event) -> bool:
    """Whether an event is no cause: training went on, and it is not what one rank alone said before it failed first."""
    if _of_another_node(case, event):
        return True
    if not survived(case, event) or _spoils_results(event) or _came_true(case, event):
        return False
    rank = told_rank(event)
    return rank not in case.first_to_fail or case.index.said_by[_same(event)] != {rank}


def _of_another_node(case: Case, event: Event) -> bool:
    """Whether Kubernetes speaks of a node on which no pod of the job runs, as far as it says where they run."""
    if not isinstance(event, KnownMessage) or event.signature != _NODE_LOST or not case.people.pods:
        return False
    node = short_name(event.captures.get("peer", ""))
    return bool(node) and node not in case.people.pods


def _spoils_results(event: Event) -> bool:
    """Whether it tells of wrong numbers: a job goes on with those."""
    cause = signatures()[event.signature].cause if isinstance(event, KnownMessage) else ""
    return cause in causes() and causes()[cause].usual_category == "corruption"


def _came_true(case: Case, event: Event) -> bool:
    """Whether it announced what then came: a job works on in an instance that the cloud takes back in two minutes."""
    minutes = signatures()[event.signature].ahead if isinstance(event, KnownMessage) else 0
    if not minutes or event.about_ns is None:
        return False
    until = event.about_ns + minutes * 60_000_000_000
    ended = (failure.about_ns for kind in _ENDINGS for failure in case.events(kind))
    return any(time is not None and event.about_ns < time <= until for time in ended)


def _same(event: Event) -> object:
    """What events have in common that say the same: their kind, or the message."""
    return event.signature if isinstance(event, KnownMessage) else type(event)


def survived_at(case: Case, source: str, line: int, rank: int | None) -> bool:
    """Whether training went on after this line of a file."""
    known = case.index.survived
    key = (source, line, rank)
    if key not in known:
        known[key] = _survived(case, source, line, rank)
    return known[key]


def _survived(case: Case, source: str, line: int, rank: int | None) -> bool:
    progress = case.index.progress.get(source)
    if progress is None or case.events(ElasticRestart):
        return False
    at = int(np.searchsorted(progress.line, line, side="right"))
    later = slice(0, at) if newest_first(progress) else slice(at, None)
    steps = progress.step[later]
    if (progress.step < 0).all():  # lines that count nothing we know, each with a loss of its own
        losses = progress.loss[later]
        steps = np.where(np.isfinite(losses), np.arange(len(losses)), -1)
    if rank is not None and len(np.unique(steps[progress.rank[later] == rank])) >= _STEPS_AFTER:
        return True
    counted = np.unique(steps[steps >= 0])
    # A script may print every hundredth step only: what counts is how far it got.
    return len(np.unique(steps)) >= _STEPS_AFTER_BY_ANYBODY or (
        len(counted) >= _STEPS_AFTER and int(abs(counted[-1] - counted[0])) >= _STEPS_AFTER_BY_ANYBODY
    )


def newest_first(progress: Progress) -> bool:
    """Whether the file runs backwards, as exports of log stores do."""
    times = progress.time_ns[progress.time_ns > 0]
    return len(times) > 1 and bool(times[0] > times[-1]) and bool((np.diff(times) <= 0).all())


def went_on(case: Case, found: Statement) -> bool:
    """Whether the same output shows a process group made later, or an agent that takes part in the rendezvous: then the
    attempt to connect was repeated."""
    later = [*case.events(GroupInit, CommInit), *(e for e in case.events(RendezvousError) if e.dropped)]
    return any(
        event.ref.source == found.ref.source
        and found.event is not None
        and event.line > found.event.line
        and found.rank in (None, event.rank)
        for event in later
    )


def first_to_fail(signs: Sequence[Statement]) -> list[Statement]:
    """Those that failed together with the first; a sign without a time of its own is kept beside those that have one.

    Where none has one, the step that each of them names tells them apart."""
    times = [s.time_ns for s in signs if s.time_ns is not None]
    if not times:
        steps = [int(named[1]) if (named := _STEP.search(s.text)) else -1 for s in signs]
        first = min(steps, default=-1)
        return [s for s, step in zip(signs, steps, strict=True) if step == first] if first >= 0 else list(signs)
    last = min(times) + TOGETHER_NS
    return [s for s in signs if s.time_ns is None or s.time_ns <= last]


def ranks_of(signs: Iterable[Statement]) -> tuple[int, ...]:
    return tuple(sorted({s.rank for s in signs if s.rank is not None}))


def unless_all(case: Case, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Nobody where everybody is meant."""
    return () if are_all(case, ranks) else ranks


def are_all(case: Case, ranks: tuple[int, ...]) -> bool:
    """Whether these are all ranks of a job that has several."""
    return case.world > 1 and len(ranks) >= case.world


def only_hangs(case: Case) -> bool:
    """Whether somebody says that the job hangs, or ended a wait by hand, and nothing shows that a process ended but by
    waiting too long."""
    interrupted = interrupted_waits(case)
    said = bool(case.index.said_to_hang) or said_category(case) == "hang" or bool(interrupted)
    ends = [event for event in case.events(*_ENDINGS) if event not in interrupted]
    return said and all(isinstance(e, Traceback) and _GAVE_UP.search(e.words) for e in ends)


def is_traceback(found: Statement) -> bool:
    """Whether this is a whole traceback, not a line of it."""
    return isinstance(found.event, Traceback)
