"""The case: all evidence of one run, lined up. Rules see this and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from whichrank.model.evidence import Ref, Source
from whichrank.records.dump import Frame
from whichrank.records.events.base import Event
from whichrank.records.events.collectives import DesyncReport, MonitoredBarrierFailed, Moved, StallReport, StoodStill
from whichrank.records.events.communication import GlooTimeout
from whichrank.records.events.launchers import ProcessLeft
from whichrank.records.events.messages import KnownMessage
from whichrank.records.events.watchdog import DumpSignal, WatchdogTimeout
from whichrank.records.log import Progress
from whichrank.records.outline import Outline
from whichrank.records.placement import Layout
from whichrank.records.stack import Handling, ProcessStack, is_crash, main_thread
from whichrank.records.variables import Variables
from whichrank.timeline.clocks.collectives import Clock, align
from whichrank.timeline.clocks.hosts import refined
from whichrank.timeline.collectives.arrivals import Late, find_late
from whichrank.timeline.collectives.held_values import OddValue
from whichrank.timeline.collectives.held_values import odd_values as find_odd_values
from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.meetings import Meetings, find_meetings
from whichrank.timeline.collectives.point_to_point import circles, left_exchange, without_receivers
from whichrank.timeline.collectives.troubles.messages_of_a_round import owed_by_one
from whichrank.timeline.collectives.troubles.root import find_troubles, in_progress
from whichrank.timeline.collectives.troubles.trouble import ARGUMENTS, OF_MESSAGES, Trouble, after_the_shift
from whichrank.timeline.collectives.unrecorded import BY_ABSENCE, cycle
from whichrank.timeline.hardware import Hardware
from whichrank.timeline.identity.coords import coordinates
from whichrank.timeline.identity.who import (
    People,
    short_name,
)
from whichrank.timeline.job_state.outcome import Finish, counts_on, finish

_GPUS_OF_A_NODE = 16

E = TypeVar("E", bound=Event)

if TYPE_CHECKING:
    from whichrank.records.clue import CodeClue
    from whichrank.records.guard import GuardFile
    from whichrank.records.host import HostClock, HostVersions
    from whichrank.records.nccl import NcclProcess
    from whichrank.records.network import Ping
    from whichrank.records.profiles.step_parts import StepParts
    from whichrank.records.rank_values import RankValues
    from whichrank.records.ras import RasReport
    from whichrank.records.second_looks import ClosestCause, OddHost, OwnLine, PartedValue, PostedFault
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
    odd_hosts: list[OddHost] = field(default_factory=list)
    """What one host printed otherwise than all its peers; looked for only where the verdict tells no reason."""
    parted_values: list[PartedValue] = field(default_factory=list)
    """Values in which replicas parted; looked for only where nothing else says that the job is wrong."""
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
    outline: Outline = field(default_factory=Outline)
    """What is known of the lines of the job's scripts."""
    variables: dict[int, Variables] = field(default_factory=dict)
    """By rank, the counts and flags that its training code held where it stood."""
    stacks: dict[int, ProcessStack] = field(default_factory=dict)
    """By global rank; the newest of each."""
    natives: dict[int, ProcessStack] = field(default_factory=dict)
    """Those with C frames."""
    unplaced: list[ProcessStack] = field(default_factory=list)
    """Stacks of which nothing says whose they are."""
    handling: dict[int, tuple[Handling, Ref]] = field(default_factory=dict)
    """Exceptions that ranks were handling when they were asked, and where that is said."""
    set_aside: list[Source] = field(default_factory=list)
    has_dumps: bool = False
    host_names: dict[str, str] = field(default_factory=dict)
    """By address, where a table tells it."""
    store: str = ""
    """The host or address at which the ranks meet, by how they were launched."""
    layouts: list[Layout] = field(default_factory=list)
    """How texts say that the job was launched."""
    pings: list[Ping] = field(default_factory=list)
    looped_hosts: frozenset[str] = frozenset()
    """Those whose own name leads to loopback, by their tables of names."""
    headed_hosts: frozenset[str] = frozenset()
    """Those under whose names a text has sections."""
    host_clocks: dict[str, HostClock] = field(default_factory=dict)
    """By host, where they were measured while the job ran."""
    host_versions: list[HostVersions] = field(default_factory=list)
    """What hosts say that they run."""
    guards: list[GuardFile] = field(default_factory=list)
    """What the guards of ranks wrote."""
    steps: Steps | None = None
    """Profiles of the ranks, where there are any."""
    hardware: Hardware = field(default_factory=Hardware)
    """What hosts say of themselves: kernel logs, GPUs, ports, limits, packets."""

    @cached_property
    def odd_values(self) -> list[OddValue]:
        """Counts and flags that some ranks hold otherwise than all others."""
        return find_odd_values(self.variables, self.outline)

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
        found = [owed_by_one(self.lineup, t) for t in find_troubles(self.lineup, self.meetings)] if self.lineup else []
        if self.lineup is not None and (self.outline.loops or self.outline.by_rank or self.outline.names_called):
            from whichrank.timeline.collectives.troubles.loops import Script, at_the_end

            found = at_the_end(self.lineup, found, Script(self.outline), self.stands)
        if self.lineup is not None and self.stacks:
            from whichrank.timeline.collectives.troubles.threads import on_their_way

            found = on_their_way(self.lineup, found, self.stacks)
        if circle := cycle(self):  # who waits where nothing is recorded has not stopped
            found = [t for t in found if t.shape not in BY_ABSENCE or not set(t.ranks) & set(circle.ranks)]
        found = [t for t in found if t.shape in OF_MESSAGES or not (t.ranks and set(t.ranks) <= self._in_circles)]
        if (left := left_exchange(self)) is not None:
            found = [replace(t, shape="left-messages", ranks=(left,)) if left in t.meeting.joined else t for t in found]
        found = [without_receivers(self, t) for t in found]
        if self.stands_still:
            found = after_the_shift(found)
        if self.all_move:
            found = [t for t in found if t.shape not in BY_ABSENCE]
        if self.has_dumps or not self.stands_still:
            return found
        # NCCL's log does not say what finished; torch's watchdog and the stacks say that the job stands still.
        return [t if t.hangs or t.shape in ARGUMENTS else replace(t, hangs=True) for t in found]

    @cached_property
    def _in_circles(self) -> set[int]:
        """Ranks that wait for each other's messages: what they have not come to, they have not skipped."""
        return {rank for circle in circles(self) for rank in circle.ranks}

    @cached_property
    def goes_on(self) -> bool:
        """Whether the dumps are those of a job that runs: whatever is unfinished had only just been issued. Or all
        ranks that were looked at went on between two looks."""
        running = self.lineup is not None and self.has_dumps and in_progress(self.lineup, self.meetings.pending)
        return running or self.all_move

    @cached_property
    def all_move(self) -> bool:
        """Whether every process that was looked at went from line to line."""
        moved = {event.rank for event in self.events(Moved)}
        return not self.unplaced and len(self.stacks) > 1 and self.stacks.keys() <= moved

    @cached_property
    def stands_still(self) -> bool:
        """Whether something besides the dumps says that the job hangs."""
        waiting = sum(activity.doing == "waiting" and not activity.presumed for activity in self.activities.values())
        # Of a job that runs, some ranks wait for a moment while most do something.
        told = self.timed_out or (waiting > 1 and 2 * waiting >= len(self.activities)) or self.all_stand
        return told or self.stands_at is not None

    @property
    def ranks_timed_out(self) -> set[int]:
        """The ranks whose watchdog says that they waited too long."""
        return {event.rank for event in self.events(WatchdogTimeout) if event.rank is not None}

    @property
    def ranks_not_timed_out(self) -> list[int]:
        """All others of the world."""
        return sorted({*range(self.world)} - self.ranks_timed_out)

    @cached_property
    def timed_out(self) -> bool:
        """Whether somebody gave up waiting, or reports that the job stands still."""
        gave_up = self.events(WatchdogTimeout, GlooTimeout, MonitoredBarrierFailed, DesyncReport, DumpSignal)
        return bool(gave_up) or any(counts_on(self, event) is None for event in self.events(StallReport))

    @property
    def all_stand(self) -> bool:
        """Whether no rank that lives moves, although none waits in a collective."""
        stood = {event.rank for event in self.events(StoodStill)}
        left = {event.rank for event in self.events(ProcessLeft)}
        return bool(stood) and set(range(self.world)) <= stood | left

    @cached_property
    def stands_still_now(self) -> bool:
        """Whether somebody looked at processes that were alive and waiting, or did not move."""
        return self.all_stand or any(activity.doing == "waiting" for activity in self.activities.values())

    @cached_property
    def experiments(self) -> list[Trial]:
        """Changes that lie between two runs of the evidence, and what they did."""
        seen = [trial for trial in self.trials if trial.seen]
        if len(self.nccl) < 2:
            return seen
        from whichrank.timeline.job_state.pairs_of_runs import trials

        return [*seen, *trials(self)]

    @cached_property
    def stands_at(self) -> Ref | None:
        """Where its own lines show that it counts no further."""
        from whichrank.timeline.steps.pace import stands_at

        return stands_at(self)

    @cached_property
    def slowed(self) -> Ref | None:
        """Where its own lines show that it became slower and stayed so."""
        from whichrank.timeline.steps.pace import slowed_down

        return slowed_down(self)

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
        from whichrank.timeline.job_state.activity import at_one_line, at_sync_lines, of_moving, of_native, of_process

        found = {rank: of_process(stack) for rank, stack in self.stacks.items() if not is_crash(stack)}
        found = {r: of_native(found[r], self.natives[r]) if r in self.natives else found[r] for r in found}
        moved = {event.rank for event in self.events(Moved)}
        found = {r: of_moving(found[r], self.stacks[r]) if r in moved else found[r] for r in found}
        found = at_one_line(found, self.stacks)
        if self.lineup is None or not any(call.backend == "nccl" for call in self.lineup.calls):
            return found
        still = {rank: activity for rank, activity in found.items() if rank not in moved}
        return found | at_sync_lines(still, self.stacks, self.outline.names_called)

    @cached_property
    def connections(self) -> Connections:
        """TCP between the hosts, by the sockets at both ends."""
        from whichrank.timeline.network.connections import Connections, connect

        sockets = self.hardware.sockets
        return connect(sockets, self.hardware.ports, self.people, self.host_names) if sockets else Connections()

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
