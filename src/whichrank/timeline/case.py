"""The case: all evidence of one run, lined up. Rules see this and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, field, structs
from msgspec.structs import replace

from whichrank.model.evidence import Source
from whichrank.records.dump import Dump, Frame, GroupMembers
from whichrank.records.events.base import Event
from whichrank.records.events.collectives import DesyncReport, MonitoredBarrierFailed, StallReport
from whichrank.records.events.communication import GlooTimeout
from whichrank.records.events.messages import KnownMessage
from whichrank.records.events.processes import Traceback
from whichrank.records.events.watchdog import DumpSignal, WatchdogTimeout
from whichrank.records.hardware import KernelEvent
from whichrank.records.log import Progress
from whichrank.records.of_kind import of_kind
from whichrank.records.placement import Placement
from whichrank.records.stack import ProcessStack, has_native_frames, main_thread
from whichrank.timeline.clocks.collectives import Clock, align
from whichrank.timeline.clocks.hosts import on_one_clock, refined
from whichrank.timeline.clocks.log_times import with_year
from whichrank.timeline.collectives.arrivals import Late, find_late
from whichrank.timeline.collectives.lineup import Lineup, line_up
from whichrank.timeline.collectives.meetings import Meetings, find_meetings
from whichrank.timeline.collectives.point_to_point import left_exchange, without_receivers
from whichrank.timeline.collectives.troubles.root import find_troubles, in_progress
from whichrank.timeline.collectives.troubles.trouble import ARGUMENTS, Trouble, after_the_shift
from whichrank.timeline.collectives.unrecorded import BY_ABSENCE, cycle
from whichrank.timeline.hardware import Hardware, gather, read_by_others
from whichrank.timeline.identity.coords import coordinates
from whichrank.timeline.identity.groups import with_members
from whichrank.timeline.identity.runs import LARGEST_WORLD, choose_run
from whichrank.timeline.identity.who import (
    People,
    is_launcher,
    meet,
    short_name,
    with_likely_ranks,
    with_ranks_of_only_group,
)
from whichrank.timeline.job_state.outcome import Finish, finish
from whichrank.timeline.job_state.own_reports import without_own_reports
from whichrank.timeline.job_state.trials import without_failed_trials

_GPUS_OF_A_NODE = 16

E = TypeVar("E", bound=Event)
_Told = Event | KernelEvent | ProcessStack

if TYPE_CHECKING:
    from whichrank.records.clue import CodeClue
    from whichrank.records.guard import GuardFile
    from whichrank.records.host import HostClock
    from whichrank.records.nccl import CommCalls, NcclProcess
    from whichrank.records.outline import Loop
    from whichrank.records.profiles.step_parts import StepParts
    from whichrank.records.rank_values import RankValues
    from whichrank.records.ras import RasReport
    from whichrank.records.second_looks import ClosestCause, OwnLine, PostedFault
    from whichrank.records.trial import Complaint, Trial
    from whichrank.timeline.guard.compare import Comparison
    from whichrank.timeline.job_state.activity import Activity
    from whichrank.timeline.job_state.statements import Index
    from whichrank.timeline.network.connections import Connections
    from whichrank.timeline.steps.analysis import Steps


class Case(Struct, dict=True):
    """What rules judge. Parts are worked out when they are first asked for."""

    lineup: Lineup | None = None
    """Entries of the flight recorder; where there are none, the calls that NCCL's log shows."""
    calls: Lineup | None = None
    """The calls of NCCL's log: they alone hold roots and reductions."""
    people: People = field(default_factory=People)
    log_events: list[Event] = field(default_factory=list)
    """What logs say, with global ranks filled in and years completed, in order of time where it is known."""
    progress: list[Progress] = field(default_factory=list)
    rank_values: list[RankValues] = field(default_factory=list)
    step_parts: list[StepParts] = field(default_factory=list)
    damaged_dumps: frozenset[int] = frozenset()
    """Ranks of which a flight-recorder dump is there that can't be read, or only in part."""
    closest: list[ClosestCause] = field(default_factory=list)
    """Causes whose wording the evidence comes close to; looked for only where nothing else tells."""
    posted: list[PostedFault] = field(default_factory=list)
    """Faults of code in notes or beside the logs; looked for only where nothing else tells, or only what is generic."""
    own_lines: list[OwnLine] = field(default_factory=list)
    """What late ranks alone printed; looked for only where nothing else says what holds them up."""
    nccl: list[NcclProcess] = field(default_factory=list)
    nccl_versions: list[str] = field(default_factory=list)
    """Versions that any line names, with a process or without."""
    ras: list[RasReport] = field(default_factory=list)
    sightings: list[KnownMessage] = field(default_factory=list)
    """Known messages in any text, with global ranks filled in."""
    trials: list[Trial] = field(default_factory=list)
    """What people say that they tried, and whether it helped."""
    complaints: list[Complaint] = field(default_factory=list)
    """What people say that the job does."""
    clues: list[CodeClue] = field(default_factory=list)
    """Places of training code that lay beside the logs."""
    loops: dict[str, tuple[Loop, ...]] = field(default_factory=dict)
    """The loops of the job's scripts, by file."""
    branches: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """The lines of the scripts that are not reached every time, by file."""
    stacks: dict[int, ProcessStack] = field(default_factory=dict)
    natives: dict[int, ProcessStack] = field(default_factory=dict)
    """Stacks with C frames."""
    """By global rank; the newest of each."""
    unplaced: list[ProcessStack] = field(default_factory=list)
    """Stacks of which nothing says whose they are."""
    set_aside: list[Source] = field(default_factory=list)
    has_dumps: bool = False
    host_clocks: dict[str, HostClock] = field(default_factory=dict)
    """By host, where they were measured while the job ran."""
    guards: list[GuardFile] = field(default_factory=list)
    """What the guards of ranks wrote."""
    steps: Steps | None = None
    """Profiles of the ranks, where there are any."""
    hardware: Hardware = field(default_factory=Hardware)
    """What hosts say of themselves: kernel logs, GPUs, ports, limits, packets."""

    @property
    def world(self) -> int:
        """How many ranks the evidence speaks of."""
        guarded = max((guard.world for guard in self.guards), default=0)
        return max(self.people.world, self.lineup.world if self.lineup else 0, guarded)

    @cached_property
    def index(self) -> Index:
        """What makes telling quick who said what."""
        from whichrank.timeline.job_state.statements import Index

        return Index(self)

    @cached_property
    def meetings(self) -> Meetings:
        return find_meetings(self.lineup) if self.lineup else Meetings()

    @cached_property
    def troubles(self) -> list[Trouble]:
        found = find_troubles(self.lineup, self.meetings) if self.lineup else []
        if self.lineup is not None and self.loops:
            from whichrank.timeline.collectives.troubles.loops import Script, at_the_end

            found = at_the_end(self.lineup, found, Script(self.loops, self.branches), self.stands)
        if self.lineup is not None and self.stacks:
            from whichrank.timeline.collectives.troubles.threads import on_their_way

            found = on_their_way(self.lineup, found, self.stacks)
        if circle := cycle(self):  # who waits where nothing is recorded has not stopped
            found = [t for t in found if t.shape not in BY_ABSENCE or not set(t.ranks) & set(circle.ranks)]
        if (left := left_exchange(self)) is not None:
            found = [replace(t, shape="left-messages", ranks=(left,)) if left in t.meeting.joined else t for t in found]
        found = [without_receivers(self, t) for t in found]
        if self.stands_still:
            found = after_the_shift(found)
        if self.has_dumps or not self.stands_still:
            return found
        # NCCL's log does not say what finished; torch's watchdog and the stacks say that the job stands still.
        return [t if t.hangs or t.shape in ARGUMENTS else replace(t, hangs=True) for t in found]

    @cached_property
    def goes_on(self) -> bool:
        """Whether the dumps are those of a job that runs: whatever is unfinished had only just been issued."""
        return self.lineup is not None and self.has_dumps and in_progress(self.lineup, self.meetings.pending)

    @cached_property
    def stands_still(self) -> bool:
        """Whether something besides the dumps says that the job hangs."""
        waiting = sum(activity.doing == "waiting" for activity in self.activities.values())
        timed_out = self.events(
            WatchdogTimeout, GlooTimeout, MonitoredBarrierFailed, DesyncReport, DumpSignal,
            StallReport,
        )  # fmt: skip
        return bool(timed_out) or waiting > 1

    @cached_property
    def stands_still_now(self) -> bool:
        """Whether somebody looked at processes that were alive and waiting."""
        return bool(self.stacks) and any(activity.doing == "waiting" for activity in self.activities.values())

    @cached_property
    def experiments(self) -> list[Trial]:
        """Changes that lie between two runs of the evidence, and what they did."""
        seen = [trial for trial in self.trials if trial.seen]
        if len(self.nccl) < 2:
            return seen
        from whichrank.timeline.job_state.pairs_of_runs import trials

        return [*seen, *trials(self)]

    @cached_property
    def finish(self) -> Finish | None:
        """Where the output says that the run ended well."""
        return finish(self)

    @cached_property
    def first_to_fail(self) -> frozenset[int]:
        """The ranks that failed before the others, by the structure of the failure."""
        from whichrank.timeline.job_state.first_failure import first_to_fail

        return first_to_fail(self)

    @cached_property
    def call_troubles(self) -> list[Trouble]:
        """What NCCL's log adds to the dumps."""
        if self.calls is None or self.calls is self.lineup:
            return self.troubles
        return find_troubles(self.calls, find_meetings(self.calls))

    @cached_property
    def activities(self) -> dict[int, Activity]:
        """What each rank was doing, by its stack."""
        if not self.stacks:
            return {}
        from whichrank.timeline.job_state.activity import of_native, of_process

        found = {rank: of_process(stack) for rank, stack in self.stacks.items()}
        return {r: of_native(found[r], self.natives[r]) if r in self.natives else found[r] for r in found}

    @cached_property
    def connections(self) -> Connections:
        """TCP between the hosts, by the sockets at both ends."""
        from whichrank.timeline.network.connections import Connections, connect

        sockets = self.hardware.sockets
        return connect(sockets, self.hardware.ports, self.people) if sockets else Connections()

    @cached_property
    def late(self) -> Late | None:
        return find_late(self.lineup, self.clocks) if self.lineup and self.has_dumps else None

    @cached_property
    def clocks(self) -> dict[int, Clock]:
        if self.lineup is None or not self.has_dumps:
            return {}
        hosts = {rank: self.people.host_of(rank) for rank in self.lineup.dumped}
        return refined(align(self.lineup), hosts, self.host_clocks)

    @cached_property
    def guarded(self) -> Comparison | None:
        """The records of guards, compared; None where fewer than two ranks have left any."""
        if len(self.guards) < 2:
            return None
        from whichrank.timeline.guard.compare import compare

        return compare(self.guards)

    @cached_property
    def coords(self) -> dict[int, dict[str, int]]:
        return coordinates(self.lineup.groups, self.lineup.world) if self.lineup else {}

    def stands(self, rank: int) -> Sequence[Frame]:
        """The frames of a rank's main thread, innermost first."""
        thread = main_thread(self.stacks[rank]) if rank in self.stacks else None
        return thread.frames if thread is not None else ()

    @cached_property
    def shows_many_hosts(self) -> bool:
        """Whether NCCL's log or a known message is of more than one host."""
        hosts = {p.host for p in self.nccl if p.host} | {s.host for s in self.sightings if s.host}
        return len(hosts) > 1 or any(node.nodes > 1 for p in self.nccl for node in p.nodes)

    @cached_property
    def on_one_node(self) -> bool:
        """Whether nothing speaks of a second host, and the ranks fit on one: then local ranks are ranks."""
        told = {e.host for e in self.log_events} | {s.host for s in self.sightings} | {p.host for p in self.nccl}
        named = self.people.hosts() | {short_name(host) for host in told if host and host != "localhost"}
        many = any(node.nodes > 1 for process in self.nccl for node in process.nodes)
        return len(named) <= 1 and not many and 0 < self.world <= _GPUS_OF_A_NODE

    def events(self, *kinds: type[E]) -> list[E]:
        """Events of these kinds, in order: `log_events`, then `sightings`."""
        found = [numbered for kind in kinds for numbered in self._by_kind.get(kind, ())]
        if len(kinds) > 1:
            found.sort(key=itemgetter(0))
        return [event for _, event in found]

    @cached_property
    def _by_kind(self) -> dict[type[Event], list[tuple[int, Any]]]:
        kinds: dict[type[Event], list[tuple[int, Any]]] = defaultdict(list)
        for number, event in enumerate((*self.log_events, *self.sightings)):
            kinds[type(event)].append((number, event))
        return kinds


def build_case(records: Iterable[Any]) -> Case:
    """Choose the run, line up what belongs to it, and say what was left out."""
    pile = _with_hosts_of_files(without_own_reports(records))
    run = choose_run([r for r in pile if isinstance(r, Dump)])
    logs = of_kind(pile, "nccl.NcclLog")
    nccl = [process for log in logs for process in log.processes]
    ras = of_kind(pile, "ras.RasReport")
    stacks = [r for r in pile if isinstance(r, ProcessStack)]
    events = with_year(
        [r for r in pile if isinstance(r, Event) and not isinstance(r, KnownMessage)],
        [dump.newest_ns for dump in run.dumps],
    )
    lineup = line_up(with_members(run.dumps, [r for r in pile if isinstance(r, GroupMembers)]), release=True)
    events = with_likely_ranks(with_ranks_of_only_group(events), lineup.world if lineup else 0)
    stacks = [replace(s, rank=None) if (s.rank or 0) > LARGEST_WORLD else s for s in stacks]
    placements = [r for r in pile if isinstance(r, Placement)]
    hosts = {r.host for r in pile if isinstance(r, KernelEvent) and r.host}
    dumped, world = (lineup.dumped, lineup.world) if lineup else ((), 0)
    people = meet(dumped, world, nccl, ras, events, stacks, placements, hosts)
    calls = _line_up_calls([part for log in logs for part in log.calls], people)
    clocks = {r.host: r for r in of_kind(pile, "host.HostClock")}
    return Case(
        lineup=lineup or calls,
        calls=calls,
        people=people,
        log_events=on_one_clock(_placed(events, people), clocks),
        progress=[r for r in pile if isinstance(r, Progress)],
        rank_values=of_kind(pile, "rank_values.RankValues"),
        step_parts=of_kind(pile, "profiles.step_parts.StepParts"),
        nccl=nccl,
        nccl_versions=[version for log in logs for version in log.versions],
        ras=ras,
        loops={file: loops for r in of_kind(pile, "outline.Outline") for file, loops in r.loops.items()},
        branches={file: lines for r in of_kind(pile, "outline.Outline") for file, lines in r.branches.items()},
        sightings=_blamed(_placed(_as_raised(without_failed_trials(read_by_others(pile)), events), people), people),
        trials=of_kind(pile, "trial.Trial"),
        complaints=of_kind(pile, "trial.Complaint"),
        clues=of_kind(pile, "clue.CodeClue"),
        stacks=_by_rank(stacks, people),
        natives=_by_rank([s for s in stacks if has_native_frames(s)], people),
        unplaced=[s for s in stacks if _rank(s, people) is None and not is_launcher(s)],
        set_aside=_aside(run.aside, run.unplaced),
        has_dumps=lineup is not None,
        host_clocks=clocks,
        guards=of_kind(pile, "guard.GuardFile"),
        steps=_profiles(pile),
        hardware=gather(pile, people, _signs_of_life(lineup, events, pile)),
    )


def _with_hosts_of_files(pile: Sequence[Any]) -> list[Any]:
    """Statements and stacks with the host that their file is of, where they don't name one."""
    told = [r for r in pile if isinstance(r, _Told)]
    if not told:
        return list(pile)
    from whichrank.timeline.identity.file_hosts import hosts_of_files

    named = {r.host for r in told if r.host} | {
        p.host for r in of_kind(pile, "nccl.NcclLog") for p in r.processes if p.host
    }
    hosts = hosts_of_files((_source(r) for r in told), named - {"localhost"})
    if not hosts:
        return list(pile)
    return [
        _on_host(r, hosts[_source(r)]) if isinstance(r, _Told) and r.host is None and _source(r) in hosts else r
        for r in pile
    ]


def _on_host(record: _Told, host: str) -> _Told:
    return structs.replace(record, host=host) if isinstance(record, Event) else replace(record, host=host)


def _source(record: _Told) -> str:
    return record.source if isinstance(record, ProcessStack) else record.ref.source


def _profiles(pile: Iterable[Any]) -> Steps | None:
    """The profiles together; what compares them is loaded only where there are any."""
    profiles = of_kind(pile, "profiles.steps.RankSteps")
    if not profiles:
        return None
    from whichrank.timeline.steps.analysis import together

    return together(profiles)


def _signs_of_life(lineup: Lineup | None, events: Iterable[Event], pile: Iterable[Any]) -> list[int]:
    """Times at which the job did or said something."""
    times = [int(t) for t in (lineup.created.min(), lineup.created.max())] if lineup and len(lineup) else []
    for event in events:
        if event.time_ns:
            # Who timed out had begun to wait as long before.
            times += [event.time_ns, event.time_ns - event.waited_ms * 10**6]
    return times + [int(t) for r in pile if isinstance(r, Progress) and len(r) for t in (r.time_ns[0], r.time_ns[-1])]


def _line_up_calls(calls: Sequence[CommCalls], people: People) -> Lineup | None:
    if not calls:
        return None
    from whichrank.timeline.collectives.nccl_calls import calls_as_dumps

    dumps = calls_as_dumps(calls, people)
    lineup = line_up(dumps, release=True) if dumps else None
    if lineup is not None:
        lineup.locator = "line"
    return lineup


def _placed(events: Sequence[E], people: People) -> list[E]:
    """Fill in global ranks by pid, and hosts by rank."""
    placed = []
    for event in events:
        rank = event.rank if event.rank is not None else people.rank_of(event.pid, event.host)
        host = event.host or (people.host_of(rank) if rank is not None else None)
        placed.append(
            structs.replace(event, rank=rank, host=host) if (rank, host) != (event.rank, event.host) else event
        )
    return placed


def _as_raised(sightings: Sequence[KnownMessage], events: Sequence[Event]) -> list[KnownMessage]:
    """Messages within a traceback that one rank printed for another are of the rank that raised it."""
    raised: dict[tuple[str, int], int] = {}
    for event in events:
        if isinstance(event, Traceback) and event.rank is not None and event.of_another:
            span = range(event.line, event.line + 2 * len(event.frames) + 3)
            raised.update({(event.ref.source, line): event.rank for line in span})
    if not raised:
        return list(sightings)
    return [structs.replace(s, rank=raised.get((s.ref.source, s.line), s.rank)) for s in sightings]


def _blamed(messages: Sequence[KnownMessage], people: People) -> list[KnownMessage]:
    """Fill in the rank that a message is about, where it names the process."""
    ranks = [_rank_by_pid(message.captures, people) for message in messages]
    return [
        message if rank is None else structs.replace(message, captures={**message.captures, "culprit": str(rank)})
        for message, rank in zip(messages, ranks, strict=True)
    ]


def _rank_by_pid(captures: dict[str, str], people: People) -> int | None:
    """The rank whose process a message names as the one it is about."""
    pid = captures.get("culprit_pid", "")
    return people.rank_of(int(pid)) if pid.isdigit() else None


def _rank(stack: ProcessStack, people: People) -> int | None:
    return stack.rank if stack.rank is not None else people.rank_of(stack.pid, stack.host)


def _by_rank(stacks: Sequence[ProcessStack], people: People) -> dict[int, ProcessStack]:
    found: dict[int, ProcessStack] = {}
    for stack in sorted(stacks, key=lambda s: s.taken_at or 0):
        rank = _rank(stack, people)
        if rank is not None and not is_launcher(stack):
            found[rank] = stack
    return found


def _aside(aside: Iterable[tuple[Dump, str]], unplaced: Iterable[Dump]) -> list[Source]:
    told = [Source(d.source, "flight_recorder", "ignored", why) for d, why in aside]
    return told + [Source(d.source, "flight_recorder", "ignored", "nothing tells which rank this is") for d in unplaced]
