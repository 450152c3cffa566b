"""All evidence of one run is lined up into a case: whose record it is, and which run it belongs to."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from msgspec import structs
from msgspec.structs import replace

from whichrank.model.evidence import Ref, Source
from whichrank.model.findings import CodePlace
from whichrank.records.dump import Dump, GroupMembers
from whichrank.records.events.base import Event
from whichrank.records.events.collectives import InOperation, OperationsCounted
from whichrank.records.events.launchers import ElasticFailure
from whichrank.records.events.messages import KnownMessage
from whichrank.records.events.processes import Traceback
from whichrank.records.hardware import KernelEvent
from whichrank.records.host import HostState, HostVersions
from whichrank.records.log import Progress
from whichrank.records.network import Ping, TcpSocket
from whichrank.records.of_kind import of_kind
from whichrank.records.outline import joined
from whichrank.records.placement import Layout, Placement
from whichrank.records.stack import Handling, ProcessStack, has_native_frames
from whichrank.timeline.case import Case
from whichrank.timeline.clocks.hosts import on_one_clock
from whichrank.timeline.clocks.log_times import with_year, years_apart
from whichrank.timeline.collectives.lineup import Lineup, line_up
from whichrank.timeline.hardware import gather, read_by_others
from whichrank.timeline.identity.addresses import (
    hosts_on_loopback,
    names_of_addresses,
    pods_of_nodes,
    with_beginnings,
    with_domains,
)
from whichrank.timeline.identity.even_blocks import note_even_blocks, note_gpus_alike
from whichrank.timeline.identity.groups import with_members
from whichrank.timeline.identity.layouts import store_of
from whichrank.timeline.identity.old_dumps import without_old
from whichrank.timeline.identity.own_words import note_named_nodes
from whichrank.timeline.identity.places import with_ranks_of_places
from whichrank.timeline.identity.rank_folders import with_ranks_of_folders
from whichrank.timeline.identity.runs import LARGEST_WORLD, choose_run
from whichrank.timeline.identity.several_looks import moves, newest_looks
from whichrank.timeline.identity.start_order import note_ended_workers, note_looked_at, note_workers
from whichrank.timeline.identity.tasks import with_tasks
from whichrank.timeline.identity.who import (
    People,
    is_launcher,
    meet,
    note_only_one_of_host,
    with_likely_ranks,
    with_ranks_of_only_group,
)
from whichrank.timeline.job_state.own_reports import without_own_reports
from whichrank.timeline.job_state.trials import without_failed_trials

if TYPE_CHECKING:
    from whichrank.records.nccl import CommCalls, NcclLog, NcclProcess
    from whichrank.timeline.identity.sections import Place
    from whichrank.timeline.steps.analysis import Steps

E = TypeVar("E", bound=Event)
_Told = Event | KernelEvent | ProcessStack | HostVersions
_Placed = _Told | Placement | HostState | TcpSocket | Ping
_FRAME = re.compile(r"\s{0,12}[\w<>.]{1,120} \([^()]{1,300}:\d{1,7}\)\s{0,8}$")
"""A line of py-spy."""


def build_case(records: Iterable[Any]) -> Case:
    """Choose the run, line up what belongs to it, and say what was left out."""
    told = without_own_reports(records)
    host_names = names_of_addresses(of_kind(told, "host.HostName"), _processes_in(told))
    hosts = _hosts_in(told)
    whole = with_beginnings({(r.host, _source(r)) for r in told if isinstance(r, _Placed) and r.host}, hosts)
    placed, headed = _with_hosts(_called(told, host_names | with_domains(hosts) | whole))
    pile = with_tasks(with_ranks_of_places(_in_the_stated_year(_called(placed, host_names))))
    pile = with_ranks_of_folders(pile, _processes_in(pile))
    run = choose_run([r for r in pile if isinstance(r, Dump)])
    logs = of_kind(pile, "nccl.NcclLog")
    nccl = _processes_in(pile)
    ras = of_kind(pile, "ras.RasReport")
    stacks, moved = newest_looks([r for r in pile if isinstance(r, ProcessStack)])
    events = with_year(
        [r for r in pile if isinstance(r, Event) and not isinstance(r, KnownMessage)],
        [dump.newest_ns for dump in run.dumps],
    )
    current, old = without_old(run.dumps, [e for e in events if isinstance(e, OperationsCounted)])
    lineup = line_up(with_members(current, [r for r in pile if isinstance(r, GroupMembers)]), release=True)
    events = with_likely_ranks(with_ranks_of_only_group(events), lineup.world if lineup else 0)
    stacks = [replace(s, rank=None) if (s.rank or 0) > LARGEST_WORLD else s for s in stacks]
    stated = [r for r in pile if isinstance(r, Placement | Layout)]
    hosts = {r.host for r in pile if isinstance(r, KernelEvent) and r.host}
    dumped, world = (lineup.dumped, lineup.world) if lineup else ((), 0)
    people = meet(dumped, world, nccl, ras, events, stacks, stated, hosts)
    note_workers(people, [r for r in pile if isinstance(r, HostState)])
    note_ended_workers(people, events)
    note_looked_at(people, stacks, events)
    events += moves(moved, people)
    messages = without_failed_trials(read_by_others(pile))
    note_named_nodes(people, messages, host_names)
    people.pods = pods_of_nodes(of_kind(pile, "host.PodPlace"))
    layouts = [r for r in stated if isinstance(r, Layout)]
    store = store_of(layouts)
    note_even_blocks(people, {*_hosts_in(pile), store} - {""})
    note_gpus_alike(people)
    note_only_one_of_host(people, stacks)
    calls = _line_up_calls([part for log in logs for part in log.calls], people)
    clocks = {r.host: r for r in of_kind(pile, "host.HostClock")}
    return Case(
        lineup=lineup or calls,
        calls=calls,
        people=people,
        log_events=[*on_one_clock(_placed(events, people), clocks), *_in_calls(stacks, people)],
        progress=[r for r in pile if isinstance(r, Progress)],
        rank_values=of_kind(pile, "rank_values.RankValues"),
        step_parts=of_kind(pile, "profiles.step_parts.StepParts"),
        nccl=nccl,
        nccl_versions=[version for log in logs for version in log.versions],
        ras=ras,
        outline=joined(of_kind(pile, "outline.Outline")),
        variables={held.rank: held for held in of_kind(pile, "variables.Variables")},
        sightings=_blamed(_placed(_in_stacks(_as_raised(messages, events), stacks, people), people), people),
        trials=of_kind(pile, "trial.Trial"),
        complaints=of_kind(pile, "trial.Complaint"),
        clues=of_kind(pile, "clue.CodeClue"),
        stacks=_by_rank(stacks, people),
        natives=_by_rank([s for s in stacks if has_native_frames(s)], people),
        unplaced=[
            s for s in stacks if _rank(s, people) is None and not is_launcher(s) and (s.host, s.pid) not in moved
        ],
        handling=_handled(stacks, people),
        set_aside=_aside([*run.aside, *old], run.unplaced),
        has_dumps=lineup is not None,
        store=store,
        layouts=layouts,
        host_names=host_names,
        pings=of_kind(pile, "network.Ping"),
        looped_hosts=hosts_on_loopback(of_kind(told, "host.HostName")),
        headed_hosts=headed,
        host_clocks=clocks,
        host_versions=[*(r for r in pile if isinstance(r, HostVersions)), *_versions_in(logs)],
        guards=of_kind(pile, "guard.GuardFile"),
        steps=_profiles(pile),
        hardware=gather(pile, people, _signs_of_life(lineup, events, pile)),
    )


def _processes_in(pile: Iterable[Any]) -> list[NcclProcess]:
    return [process for log in of_kind(pile, "nccl.NcclLog") for process in log.processes]


def _versions_in(logs: Iterable[NcclLog]) -> Iterator[HostVersions]:
    """A version that stands in the text of one host, on a line without its name, is of that host."""
    for log in logs:
        hosts = {process.host for process in log.processes}
        host = hosts.pop() if len(hosts) == 1 else None
        versions = {version.partition("+")[0] for version in log.versions}
        if host and len(versions) == 1:
            ref = Ref(log.source, "", f"NCCL version {log.versions[0]}", None, host)
            yield HostVersions(ref, 0, {"nccl": versions.pop()}, host)


def _hosts_in(pile: Sequence[Any]) -> set[str]:
    """The hosts that records name."""
    named = {r.host for r in pile if isinstance(r, _Told | Placement) and r.host}
    named |= {host for r in pile if isinstance(r, Layout) for host in (*r.hosts, *r.numbered)}
    named |= {row.pod for row in of_kind(pile, "host.PodPlace")}
    return named | {process.host for process in _processes_in(pile) if process.host}


def _speaking_in(pile: Sequence[Any]) -> dict[str, set[str]]:
    """By text, the hosts that say of themselves that they wrote it: NCCL's lines, the kernel's, the agent's table."""
    told = [(process.source, process.host) for process in _processes_in(pile) if process.host]
    told += [(_source(r), r.host) for r in pile if isinstance(r, KernelEvent | ElasticFailure) and r.host]
    found: dict[str, set[str]] = {}
    for source, host in told:
        found.setdefault(source, set()).add(host)
    return found


def _called(pile: Sequence[Any], names: dict[str, str]) -> list[Any]:
    """Hosts by their names where a launcher or a list gives their address, as Ray does."""
    if not names:
        return list(pile)
    return [_on_host(r, names[r.host]) if isinstance(r, _Placed) and r.host in names else r for r in pile]


def _with_hosts(records: Sequence[Any]) -> tuple[list[Any], frozenset[str]]:
    """Statements and stacks with their host, where they don't name one: by the heading above, else by their file. Also
    the hosts that headings name."""
    told = [r for r in records if isinstance(r, _Told)]
    if not any(isinstance(r, _Placed | Progress) for r in records):
        return list(records), frozenset()
    named = _hosts_in(records)
    pile, headed = _below_headings(records, named)
    named |= headed
    from whichrank.timeline.identity.file_hosts import hosts_of_files

    sources = {_source(r) for r in told} | {r.source for r in records if isinstance(r, Progress)}
    hosts = hosts_of_files(sources, named - {"localhost"}, _speaking_in(records))
    if not hosts:
        return pile, headed
    told_by = [
        _on_host(r, hosts[_source(r)])
        if isinstance(r, _Told | Placement) and r.host is None and _source(r) in hosts
        else r
        for r in pile
    ]
    return [*told_by, *_counting_there(records, hosts)], headed


def _counting_there(records: Sequence[Any], hosts: Mapping[str, str]) -> list[Placement]:
    """The ranks that count their steps in the files of hosts, where every rank does so in those of one host."""
    where: dict[int, set[str]] = {}
    places: list[Placement] = []
    for progress in (r for r in records if isinstance(r, Progress) and r.source in hosts):
        for rank in np.unique(progress.rank[progress.rank >= 0]).tolist():
            ref = Ref(progress.source, f"line {int(progress.line[progress.rank == rank][0])}", "", rank)
            where.setdefault(rank, set()).add(hosts[progress.source])
            places.append(Placement(rank, ref, host=hosts[progress.source]))
    apart = len({host for each in where.values() for host in each}) > 1 and all(
        len(each) == 1 for each in where.values()
    )
    return places if apart else []


def _below_headings(pile: Sequence[Any], named: set[str]) -> tuple[list[Any], frozenset[str]]:
    sections = of_kind(pile, "host.HostSection")
    if not sections:
        return list(pile), frozenset()
    from whichrank.timeline.identity.sections import Sections

    known = Sections(sections, named)
    return [_in_section(r, known.at(_source(r), _line(r))) if isinstance(r, _Placed) else r for r in pile], known.hosts


def _in_section(record: _Placed, place: Place) -> _Placed:
    if place.host is not None and record.host is None:
        record = _on_host(record, place.host)
    if not isinstance(record, Event) or (place.rank, place.local_rank) == (None, None):
        return record
    if record.rank is not None or record.local_rank is not None:
        return record
    ref = replace(record.ref, rank=place.rank)
    return structs.replace(record, rank=place.rank, local_rank=place.local_rank, ref=ref)


def _in_the_stated_year(pile: list[Any]) -> list[Any]:
    """The texts of the job in the year that the kernel logs beside them state."""
    stated = [r.time_ns for r in pile if isinstance(r, KernelEvent) and r.time_ns and r.time_ns > 0]
    if not stated:
        return pile
    newest: dict[str, int] = {}
    for record in pile:
        if isinstance(record, Event) and record.time_ns:
            newest[record.ref.source] = max(record.time_ns, newest.get(record.ref.source, 0))
    apart = {source: shift for source, time in newest.items() if (shift := years_apart(time, stated))}
    return [_moved(r, apart) if isinstance(r, Event | Progress) else r for r in pile] if apart else pile


def _moved(record: Event | Progress, apart: dict[str, int]) -> Event | Progress:
    shift = apart.get(record.ref.source if isinstance(record, Event) else record.source, 0)
    if not shift:
        return record
    if isinstance(record, Progress):
        return replace(record, time_ns=np.where(record.time_ns > 0, record.time_ns + shift, record.time_ns))
    time, after = (at + shift if at else at for at in (record.time_ns, record.after_ns))
    return structs.replace(record, time_ns=time, after_ns=after)


def _on_host(record: _Placed, host: str) -> _Placed:
    if isinstance(record, ProcessStack):
        return replace(record, host=host)
    ref = replace(record.ref, host=host)
    if isinstance(record, Event):
        return structs.replace(record, host=host, ref=ref)
    return replace(record, host=host, ref=ref)


def _source(record: _Placed) -> str:
    return record.source if isinstance(record, ProcessStack) else record.ref.source


def _line(record: _Placed) -> int:
    if not isinstance(record, Placement | HostState | TcpSocket | Ping):
        return record.line
    number = record.ref.locator.removeprefix("line ")
    return int(number) if number.isdecimal() else 0


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


def _in_stacks(sightings: Sequence[KnownMessage], stacks: Sequence[ProcessStack], people: People) -> list[KnownMessage]:
    """Messages that are a frame of a stack are of the rank whose stack it is."""
    if not stacks:
        return list(sightings)
    begins: dict[str, list[tuple[int, int]]] = {}
    for stack in stacks:
        rank = _rank(stack, people)
        begins.setdefault(stack.source, []).append((stack.line, -1 if rank is None else rank))
    begins = {source: sorted(starts) for source, starts in begins.items()}
    placed = []
    for message in sightings:
        starts = begins.get(message.ref.source, [])
        above = bisect_left(starts, (message.line + 1, -1)) - 1 if message.rank is None else -1
        mine = starts[above][1] if above >= 0 and _FRAME.match(message.ref.quote) else -1
        placed.append(message if mine < 0 else structs.replace(message, rank=mine))
    return placed


def _blamed(messages: Sequence[KnownMessage], people: People) -> list[KnownMessage]:
    """Fill in the rank that a message is about, where it names the process, and the host that it names itself."""
    ranks = [_rank_by_pid(message.captures, people) for message in messages]
    blamed = [
        message if rank is None else structs.replace(message, captures={**message.captures, "culprit": str(rank)})
        for message, rank in zip(messages, ranks, strict=True)
    ]
    return [structs.replace(m, host=node) if (node := m.captures.get("node")) else m for m in blamed]


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


def _in_calls(stacks: Sequence[ProcessStack], people: People) -> Iterator[InOperation]:
    """The calls in which ranks wait, where their stacks show the arguments."""
    for rank, stack in _by_rank([s for s in stacks if s.call is not None], people).items():
        call = stack.call
        if call is not None:
            whom = f" {call.word} {call.peer}" if call.peer is not None else ""
            ref = Ref(stack.source, f"line {stack.line}", f"rank {rank} is in {call.op}{whom}", rank)
            yield InOperation(
                ref=ref, rank=rank, pid=stack.pid, op=call.op, word=call.word, peer=call.peer, ranks=call.ranks,
                name=call.name,
            )  # fmt: skip


def _handled(stacks: Sequence[ProcessStack], people: People) -> dict[int, tuple[Handling, Ref]]:
    found: dict[int, tuple[Handling, Ref]] = {}
    for stack in stacks:
        told, rank = stack.handling, _rank(stack, people)
        if told is not None and rank is not None:
            place = CodePlace(told.frame.file, told.frame.line, told.frame.function)
            quote = f"handling {told.type}: {told.text}, raised at {place}"
            found[rank] = told, Ref(stack.source, f"line {told.line}", quote, rank, people.host_of(rank))
    return found


def _aside(aside: Iterable[tuple[Dump, str]], unplaced: Iterable[Dump]) -> list[Source]:
    told = [Source(d.source, "flight_recorder", "ignored", why) for d, why in aside]
    return told + [Source(d.source, "flight_recorder", "ignored", "nothing tells which rank this is") for d in unplaced]
