"""Hardware lined up with the job: whose host and GPU a record is about, and whether it falls into the run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from whichrank.model.findings import Gpu
from whichrank.records.events.base import Event
from whichrank.records.events.messages import KnownMessage
from whichrank.records.events.startup import RendezvousError
from whichrank.records.hardware import GpuState, GpuTopology, KernelEvent, KernelKind, address
from whichrank.records.log import Progress
from whichrank.records.of_kind import of_kind
from whichrank.timeline.clocks.log_times import moved_to_year
from whichrank.timeline.identity.addresses import whole_name
from whichrank.timeline.identity.who import People, Process, by_short_name, host_in_name, short_name

if TYPE_CHECKING:
    from whichrank.records.host import HostState, TimeService
    from whichrank.records.network import PortState, TcpCounters, TcpFlow, TcpSocket

When = Literal["during", "before", "after", "unknown"]

# Clocks of hosts differ by seconds; a job's first log line comes some minutes after it touched the GPUs.
EARLIER_NS = 300 * 10**9
LATER_NS = 3600 * 10**9
_FUNCTION = ~0xF


class Hardware(Struct):
    """What the hosts say of themselves, with hosts named as the job names them."""

    kernel: list[KernelEvent] = field(default_factory=list)
    """In order of time where it is known, else of their logs."""
    gpus: list[GpuState] = field(default_factory=list)
    topologies: list[GpuTopology] = field(default_factory=list)
    ports: list[PortState] = field(default_factory=list)
    """One per port and moment, in order of the moments."""
    hosts: list[HostState] = field(default_factory=list)
    time_services: list[TimeService] = field(default_factory=list)
    flows: list[TcpFlow] = field(default_factory=list)
    sockets: list[TcpSocket] = field(default_factory=list)
    tcp: list[TcpCounters] = field(default_factory=list)
    """One per network namespace and moment, in order of the moments."""
    people: People = field(default_factory=People)
    began_ns: int | None = None
    ended_ns: int | None = None
    """The job's first and last sign of life, by its own evidence."""
    output: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The first and last line of the job's own output in each text."""

    def when(self, event: KernelEvent) -> When:
        """Whether an event falls into the run."""
        if event.time_ns is None or event.time_ns <= 0 or self.began_ns is None or self.ended_ns is None:
            return "unknown"
        if event.time_ns < self.began_ns - EARLIER_NS:
            return "during" if self._amid_output(event) else "before"
        return "after" if event.time_ns > self.ended_ns + LATER_NS else "during"

    def _amid_output(self, event: KernelEvent) -> bool:
        """Whether it stands between lines of the job, as in a log that was merged as it was written."""
        first, last = self.output.get(event.ref.source, (0, 0))
        return 0 < first < event.line < last

    def of_kind(self, *kinds: KernelKind) -> list[KernelEvent]:
        return [event for event in self.kernel if event.kind in kinds]

    def gpu(self, host: str | None, device: str) -> Gpu | None:
        """The GPU at a bus address, by what nvidia-smi or NCCL says of that host."""
        place = address(device)
        states = [s for s in self.gpus if same_host(s.host, host) and _same_gpu(s, device, place)]
        uuid = next((s.uuid for s in states if s.uuid), None) or self._told_uuid(host, place)
        index = next((s.index for s in states if s.index is not None), None)
        if index is None:
            index = next((p.gpu for p in self._at(host, place) if p.gpu is not None), None)
        return Gpu(host or "", index, uuid) if index is not None else None

    def _told_uuid(self, host: str | None, place: int | None) -> str | None:
        for event in self.of_kind("gpu_name"):
            if same_host(event.host, host) and place is not None and address(event.device) == place:
                return event.text("uuid") or None
        return None

    def _at(self, host: str | None, place: int | None) -> list[Process]:
        """Processes of the job on the GPU at this address."""
        if place is None:
            return []
        return [
            p
            for p in self.people.by_rank.values()
            if (mine := address(p.bus_id)) is not None
            and mine & _FUNCTION == place & _FUNCTION
            and (host is None or p.host is None or same_host(p.host, host))
        ]

    def ranks_on(self, host: str | None, device: str, pid: int | None = None) -> tuple[int, ...]:
        """Ranks on this GPU: by its address, by the processes that nvidia-smi shows on it, by the driver's pid."""
        place = address(device)
        by_address = sorted({p.rank for p in self._at(host, place)})
        if by_address and len({self.people.host_of(r) for r in by_address}) == 1:
            return tuple(by_address)
        pids = {n for s in self.gpus if same_host(s.host, host) and _same_gpu(s, device, place) for n in s.pids}
        pids |= self._told_by_driver(host, place)
        seen = sorted({r for n in pids if (r := self.rank_of(n, host)) is not None})
        if seen:
            return tuple(seen)
        rank = self.rank_of(pid, host)
        if rank is not None:
            return (rank,)
        gpu = self.gpu(host, device)
        return self.ranks_at(host, gpu.index) if gpu is not None else ()

    def _told_by_driver(self, host: str | None, place: int | None) -> set[int]:
        """Processes that the kernel log names with this GPU: one message of a fault has the pid, another has not."""
        events = (e for e in self.kernel if e.pid is not None and same_host(e.host, host))
        return {e.pid for e in events if e.pid and place is not None and address(e.device) == place}

    def ranks_at(self, host: str | None, index: int | None) -> tuple[int, ...]:
        """Ranks on the GPU of this number: as told, else one rank per GPU in the order of their local ranks."""
        if index is None:
            return ()
        here = [p for p in self.people.by_rank.values() if host is None or p.host is None or same_host(p.host, host)]
        if host is None and len({short_name(p.host) for p in here if p.host}) > 1:
            return ()  # every host has a GPU of this number
        told = sorted({p.rank for p in here if p.gpu == index})
        if told or any(p.gpu is not None for p in here):
            return tuple(told)
        local = sorted({p.rank for p in here if p.local_rank == index})
        if local or any(p.local_rank is not None for p in here):
            return tuple(local)
        # All GPUs of a host, and as many ranks: launchers give them out in this order.
        there = {s.index for s in self.gpus if same_host(s.host, host) and s.index is not None}
        ranks = sorted(p.rank for p in here if p.host is not None)
        if ranks and there == set(range(len(ranks))) and index in there:
            return (ranks[index],)
        # Some of its ranks: hosts of one job start as many as they have GPUs.
        many = len(there)
        if many and there == set(range(many)) and len({rank // many for rank in ranks}) == 1 and index < many:
            return tuple(rank for rank in ranks if rank % many == index)
        # A process that says GPU 1 sees several; GPU 0 may be the only one that it may use.
        if index and not there and ranks == list(range(self.people.world)) and index < len(ranks):
            return (index,)
        named = {short_name(p.host) for p in self.people.by_rank.values() if p.host} | {short_name(host or "")}
        alone = len(named - {""}) <= 1 and there == set(range(self.people.world))
        return (index,) if alone and index < self.people.world else ()

    def sockets_of_ranks(self) -> dict[int, list[TcpSocket]]:
        """Those whose rank is known, by rank."""
        found: dict[int, list[TcpSocket]] = {}
        for socket in self.sockets:
            if socket.rank is not None:
                found.setdefault(socket.rank, []).append(socket)
        return found

    def rank_of(self, pid: int | None, host: str | None) -> int | None:
        """The rank of a process on a host; a pid of another host is another process."""
        rank = self.people.rank_of(pid, host)
        if rank is None:
            return None
        known = self.people.host_of(rank)
        return rank if host is None or known is None or same_host(known, host) else None

    def stranger(self, pid: int | None, host: str | None) -> bool:
        """Whether the job's processes on that host are all known, and this is none of them."""
        here = [p for p in self.people.by_rank.values() if host is None or p.host is None or same_host(p.host, host)]
        whole = 0 < self.people.world <= len(self.people.by_rank) and all(p.pid is not None for p in here)
        return pid is not None and bool(here) and whole and all(p.pid != pid for p in here)

    def foreign(self, host: str | None, device: str) -> bool:
        """Whether the job's GPUs on that host are all known, and this is none of them."""
        here = [p for p in self.people.by_rank.values() if host is not None and same_host(p.host, host)]
        places = {address(p.bus_id) for p in here}
        mine = address(device)
        if not here or None in places or mine is None or len(self.people.by_rank) < self.people.world:
            return False
        return all(place is not None and place & _FUNCTION != mine & _FUNCTION for place in places)

    def ranks_of_host(self, host: str | None) -> tuple[int, ...]:
        if host is None:
            return ()
        return tuple(sorted(p.rank for p in self.people.by_rank.values() if same_host(p.host, host)))


def same_host(one: str | None, other: str | None) -> bool:
    """Whether two names mean one host: the domain may be left out; two unnamed hosts count as one."""
    return short_name(one or "") == short_name(other or "")


def _same_gpu(state: GpuState, device: str, place: int | None) -> bool:
    if state.uuid and state.uuid in device:
        return True
    if state.node is not None and device == f"gpu node-{state.node}":
        return True
    mine = address(state.bus_id)
    return mine is not None and place is not None and mine & _FUNCTION == place & _FUNCTION


def gather(pile: Iterable[Any], people: People, times: Sequence[int]) -> Hardware:
    """Sort the records of hardware, with hosts and years filled in. `times` are the job's own signs of life."""
    known = [t for t in times if t > 0]
    records = list(pile)
    began_ns, ended_ns = min(known, default=None), max(known, default=None)
    found = Hardware(people=people, began_ns=began_ns, ended_ns=ended_ns, output=_output(records))
    hosts = sorted({p.host for p in people.by_rank.values() if p.host}) or sorted(
        {r.host for r in records if isinstance(r, KernelEvent) and r.host}
    )
    names = by_short_name({*hosts, *(h for r in records if isinstance(r, RendezvousError) for h in r.dropped)})

    def hosted(kind: str) -> list[Any]:
        return [_hosted(record, hosts, names) for record in of_kind(records, kind)]

    found.gpus, found.topologies = hosted("hardware.GpuState"), hosted("hardware.GpuTopology")
    found.hosts, found.flows = hosted("host.HostState"), hosted("network.TcpFlow")
    found.time_services = hosted("host.TimeService")
    found.sockets, found.tcp = of_kind(records, "network.TcpSocket"), hosted("network.TcpCounters")
    found.kernel = _ordered(hosted("hardware.KernelEvent"), known)
    found.ports = _moments(hosted("network.PortState"))
    found.tcp.sort(key=lambda c: (c.taken_ns or 0, order_of(c.ref.source), c.line))
    found.gpus.sort(key=lambda s: (s.taken_ns or 0, order_of(s.ref.source), s.line))
    found.hosts.sort(key=lambda s: order_of(s.ref.source))
    return found


def _output(records: Iterable[Any]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for record in records:
        if isinstance(record, Event) and record.line and not isinstance(record, KnownMessage):
            source, lines = record.ref.source, (record.line, record.line)
        elif isinstance(record, Progress) and len(record):
            source, lines = record.source, (int(record.line[0]), int(record.line[-1]))
        else:
            continue
        known = found.get(source, lines)
        found[source] = (min(known[0], lines[0]), max(known[1], lines[1]))
    return found


def read_by_others(pile: Iterable[Any]) -> list[KnownMessage]:
    """Known messages, but not in lines of the kernel or of nvidia-smi: these are judged with their times and GPUs."""
    records = list(pile)
    told = {(r.ref.source, r.line) for r in records if isinstance(r, KernelEvent | GpuState)}
    logs = {r.ref.source for r in records if isinstance(r, KernelEvent)}
    return [
        r
        for r in records
        if isinstance(r, KnownMessage)
        and (r.ref.source, r.line) not in told
        and not (r.ref.source in logs and "NVRM: " in r.ref.quote)
    ]


def _hosted(record: Any, hosts: Sequence[str], names: Mapping[str, str]) -> Any:
    """The record with the host's name as the job spells it."""
    name = record.host
    if name is None:
        name = host_in_name(record.ref.source, names) or (hosts[0] if len(hosts) == 1 else None)
    else:
        known = next((h for h in hosts if same_host(h, name)), None)
        name = known or whole_name(name, record.ref.source, names) or name
    if name == record.host:
        return record
    return replace(record, host=name, ref=replace(record.ref, host=name))


def _ordered(events: Iterable[KernelEvent], known: Sequence[int]) -> list[KernelEvent]:
    """Years completed, one of each told twice, in order of time."""
    pile = list(events)
    reference = max([*known, *(e.time_ns for e in pile if e.time_ns and e.time_ns > 0)], default=None)
    unique: dict[tuple[object, ...], KernelEvent] = {}
    for event in (_dated(event, reference) for event in pile):
        moment = event.uptime_ns if event.uptime_ns is not None else event.time_ns
        key = (event.host, event.ref.quote, moment if moment is not None else (event.ref.source, event.line))
        unique.setdefault(key, event)
    return sorted(unique.values(), key=_moment)


def _dated(event: KernelEvent, reference: int | None) -> KernelEvent:
    if event.time_ns is None or event.time_ns >= 0 or reference is None:
        return event
    time = moved_to_year(event.time_ns, reference)
    told = datetime.fromtimestamp(time // 10**9, timezone.utc).isoformat().replace("+00:00", "Z")
    return replace(event, time_ns=time, ref=replace(event.ref, time=told))


def _moment(event: KernelEvent) -> tuple[bool, int, int]:
    time = event.time_ns if event.time_ns is not None else event.uptime_ns
    return (event.time_ns is None, time or 0, event.line)


def order_of(label: str) -> tuple[object, ...]:
    """Sorts `before` first, `after` last, and numbers as numbers."""
    lower = label.lower()
    stage = 0 if "before" in lower else 2 if "after" in lower else 1
    parts = re.split(r"(\d{1,18})", lower)
    return (stage, *((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts))


def _moments(ports: Iterable[PortState]) -> list[PortState]:
    """Files of one sysfs tree put together, in order."""
    merged: dict[tuple[object, ...], PortState] = {}
    for port in sorted(ports, key=lambda p: (order_of(p.ref.source), p.line)):
        key = (port.host, port.snapshot, port.device, port.port)
        old = merged.get(key)
        merged[key] = port if old is None else _joined(old, port)
    return list(merged.values())


def _joined(old: PortState, new: PortState) -> PortState:
    return replace(
        old,
        state=old.state or new.state,
        physical=old.physical or new.physical,
        rate=old.rate if old.rate is not None else new.rate,
        layer=old.layer or new.layer,
        mtu=old.mtu if old.mtu is not None else new.mtu,
        counters={**old.counters, **new.counters},
    )
