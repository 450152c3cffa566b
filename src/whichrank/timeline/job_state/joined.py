"""A finding joined with what the state of the job knows: whose it is, and what was observed.

A kernel log names a GPU, a launcher a host, a message nobody. If the structure of the failure (who raised, who ended
first, who did not come) points at one rank of that host, that is the rank the finding is about. And a job whose ranks
timed out in a collective while nobody had died hung, whatever the message would do elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from whichrank.facts.taxonomy import causes
from whichrank.model.findings import CodePlace, Finding, Subject
from whichrank.model.grades import Grade
from whichrank.model.late_pattern import late
from whichrank.records.events.base import Event
from whichrank.records.events.communication import NcclError
from whichrank.records.events.launchers import ActorDied
from whichrank.records.events.processes import CudaError, NativeCrash, Traceback
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state.trials import said_category
from whichrank.timeline.job_state.versions import odd_hosts

if TYPE_CHECKING:
    from whichrank.timeline.case import Case
    from whichrank.timeline.job_state.statements import Statement

_OF_ONE_RANK = ("gpu-hardware", "cuda-fault", "host-resources", "slow-rank", "rdma-fabric")
_OF_ONE_HOST = ("rdma-fabric", "net-interface", "software-version", "host-resources")
_OF_A_PROCESS = ("cuda-fault", "gpu-hardware")
"""What fails in a process fails on its host."""
_OF_THE_WHOLE_HOST = ("rdma-fabric", "net-interface", "software-version")
_LOSES_THE_HOST = ("host-lost",)
"""What is wrong with such a host is wrong for all of its ranks."""
_OF_A_MACHINE = ("pcie-p2p",)
"""What is between two GPUs is in one machine."""
_ADDRESS = late(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
_GPU = late(
    r"\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?\b|\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
)
"""A bus address, or the driver's name of a GPU."""
_PEER = late(r"\bpeer (\d{1,3}(?:\.\d{1,3}){3}(?![\d.])|[A-Za-z][\w.-]{1,253}(?=<\d))")
_REMOTE = "remote process exited"
_NOT_REACHED = late(r"(?i:connect(?:ion)? .{0,80}(?:fail|refused|timed out|unreach)|no route to host)")
_RAISED = "rank-exception"
_OF_THE_LOOP = ("StopIteration", "StopAsyncIteration", "GeneratorExit", "Empty", "Full")
"""Exceptions that say that something is over, and not that anything is wrong."""
_HELD = ("FileExistsError", "BlockingIOError", "AlreadyLocked", "LockTimeout")
"""Exceptions of those who come to a lock that somebody holds."""
_ENDS_A_PROCESS = ("gpu-hardware", "cuda-fault", "rdma-fabric", "net-interface", "launch-rendezvous")
_SPOILS = ("pcie-p2p",)
"""Copies between GPUs that go wrong stop a job, or spoil what it computes."""
_KILLS = ("host-out-of-memory",)
_SEEN_BY_PEERS = ("nvlink-fault",)
_LEAVES_WAITING = ("gpu-fell-off-bus", "nvlink-fault")
"""Of these families, but a process whose GPU is gone does not end by it."""


def joined(case: Case, finding: Finding) -> Finding:
    """The finding with the ranks and the category that the rest of the evidence gives it."""
    joins = (
        _among_peers, _of_some_hosts, _at_address, _of_another_version, _of_the_actor, _of_host, _named_by_all,
        _of_whom, _with_ranks_of_host, _with_host_of_ranks, _on_the_only_host, _called, _observed,
        _waits_for_a_lock, _while_handling,
    )  # fmt: skip
    for join in joins:
        finding = join(case, finding)
    return finding


def _among_peers(case: Case, finding: Finding) -> Finding:
    """What both ends of a link report is the fault of one of them, or of what is between them."""
    del case
    if finding.cause not in _SEEN_BY_PEERS or finding.kind != "messages" or len(finding.subject.ranks) < 2:
        return finding
    return replace(finding, subject=replace(finding.subject, ranks=(), candidates=finding.subject.ranks))


def _of_some_hosts(case: Case, finding: Finding) -> Finding:
    """Clocks that are wrong on all hosts are wrong where they were compared with."""
    hosts = {short_name(host) for host in finding.subject.hosts}
    if finding.cause != "clock-skew" or len(hosts) < 2 or hosts != hosts_spoken_of(case) | hosts:
        return finding
    return replace(finding, subject=replace(finding.subject, hosts=()))


def _at_address(case: Case, finding: Finding) -> Finding:
    """The rank on the GPU whose address the evidence names, where it names one and the finding nobody."""
    subject, cause = finding.subject, causes().get(finding.cause)
    if cause is None or cause.family not in _OF_A_PROCESS or subject.ranks or subject.candidates or subject.gpus:
        return finding
    named = {(ref.host, device.lower()) for ref in finding.evidence for device in _GPU.findall(ref.quote)}
    if len(named) != 1:
        return finding
    host, device = named.pop()
    gpu, ranks = case.hardware.gpu(host, device), case.hardware.ranks_on(host, device)
    gpus = (gpu,) if gpu is not None and gpu.host else ()
    if len(ranks) != 1:
        return replace(finding, subject=replace(subject, gpus=gpus))
    others = tuple(rank for rank in range(case.world) if rank not in ranks)
    return replace(finding, subject=replace(subject, ranks=ranks, gpus=gpus), victims=finding.victims or others)


def _of_another_version(case: Case, finding: Finding) -> Finding:
    """The host that runs another version than the others, where versions are at fault and the finding names nobody."""
    if finding.subject != Subject(code=finding.subject.code):
        return finding
    hosts = odd_hosts(case, finding.cause)
    return replace(finding, subject=replace(finding.subject, hosts=hosts)) if hosts else finding


def _of_the_actor(case: Case, finding: Finding) -> Finding:
    """The one actor whose end Ray records, where a process was killed and the finding names nobody."""
    died = {event.rank: event.ref for event in case.events(ActorDied)}
    if finding.cause not in _KILLS or finding.subject != Subject(code=finding.subject.code) or len(died) != 1:
        return finding
    ((rank, told),) = died.items()
    if rank is None:
        return finding
    return replace(finding, subject=replace(finding.subject, ranks=(rank,)), evidence=(*finding.evidence, told))


def _of_host(case: Case, finding: Finding) -> Finding:
    """The host that is meant where the finding names nobody: all its evidence is of one host, or an address is."""
    subject, cause = finding.subject, causes().get(finding.cause)
    of_host = cause is not None and cause.family in (*_OF_ONE_HOST, *_OF_A_PROCESS)
    if cause is None or not of_host or subject != Subject(code=subject.code):
        return finding
    known = hosts_spoken_of(case)
    meant = _announced(case, finding) if cause.family == "net-interface" else set()
    told = {ref.host for ref in finding.evidence}
    if not meant and len(told) == 1 and None not in told and _alone_in_saying(case, finding):
        meant = {short_name(host) for host in told if host is not None}
    if not meant or not meant < known:
        return finding
    return replace(finding, subject=replace(subject, hosts=tuple(sorted(meant))))


def _alone_in_saying(case: Case, finding: Finding) -> bool:
    """Whether no other host says what the finding cites, which are only some of the lines."""
    cited = {(ref.source, ref.locator) for ref in finding.evidence}
    hosts = {ref.host for ref in finding.evidence}
    kinds = {s.signature for s in case.sightings if (s.ref.source, s.ref.locator) in cited}
    return all(s.host in hosts for s in case.sightings if s.signature in kinds)


def _named_by_all(case: Case, finding: Finding) -> Finding:
    """The host at which all connections end that failed, where the finding names nobody, or ranks of no known host."""
    subject = finding.subject
    known = subject.hosts or subject.candidates or subject.gpus or subject.links
    if finding.category not in ("hang", "crash") or known or any(map(case.people.host_of, subject.ranks)):
        return finding
    host = _common_end(case)
    return replace(finding, subject=replace(subject, hosts=(host,))) if host else finding


def _common_end(case: Case) -> str | None:
    """The host that all others name as their peer in NCCL's warnings, and nobody else; it may name others itself. Where
    nothing says whose that address is, it is of the one host that names others and not this."""
    owners = {p.bootstrap_address: short_name(p.host) for p in case.nccl if p.bootstrap_address and p.host}
    owners = case.host_names | owners
    named: dict[str, set[str]] = {}
    for process in case.nccl:
        peers = {owners.get(peer, short_name(peer)) for w in process.warnings for peer in _PEER.findall(w.text)}
        if process.host and peers:
            named.setdefault(short_name(process.host), set()).update(peers)
    alone = Counter(peer for peers in named.values() if len(peers) == 1 for peer in peers)
    end, times = max(alone.items(), key=lambda item: (item[1], item[0]), default=("", 0))
    rest = [host for host, peers in named.items() if peers != {end} and host != end]
    if times < 2 or len(rest) > 1:
        return None
    if not _ADDRESS.fullmatch(end):
        return end if not rest else None
    return rest[0] if rest and end not in named[rest[0]] else None


def hosts_spoken_of(case: Case) -> set[str]:
    """Every host that the evidence speaks of."""
    named = {e.host for e in case.log_events} | {s.host for s in case.sightings} | {p.host for p in case.nccl}
    named |= case.headed_hosts
    return case.people.hosts() | {short_name(host) for host in named if host and host != "localhost"}


def _announced(case: Case, finding: Finding) -> set[str]:
    """The hosts that gave the others an address of which the finding speaks, if not all gave it."""
    spoken = {address for ref in finding.evidence for address in _ADDRESS.findall(ref.quote)}
    owners: dict[str, set[str]] = {}
    for seen in case.sightings:
        if seen.host and (address := seen.captures.get("address", "")) and seen.captures.get("interface"):
            owners.setdefault(address, set()).add(short_name(seen.host))
    found = {host for address in spoken for host in owners.get(address, ())}
    blamed = {host for address in _failed(finding) for host in owners.get(address, ())}
    return blamed or (found if len(owners) > 1 else set())


def _failed(finding: Finding) -> set[str]:
    """The addresses that could not be reached."""
    quotes = [ref.quote for ref in finding.evidence if _NOT_REACHED.search(ref.quote)]
    return {address for quote in quotes for address in _ADDRESS.findall(quote)}


def _with_ranks_of_host(case: Case, finding: Finding) -> Finding:
    """The ranks of the hosts that are meant: all of them where the cause acts on the whole host, or where all others
    waited for them; else as candidates."""
    subject, cause = finding.subject, causes().get(finding.cause)
    named = subject.ranks or subject.candidates or subject.gpus or subject.links
    if cause is None or named or not subject.hosts or finding.category not in ("hang", "crash"):
        return finding
    ranks = tuple(sorted({rank for host in subject.hosts for rank in case.people.ranks_on(host)}))
    ranks = ranks or tuple(rank for rank in _failed_themselves(case) if case.people.host_of(rank) is None)
    if not ranks or len(ranks) >= case.world:
        return finding
    whole = cause.family in _OF_THE_WHOLE_HOST or (cause.slug in _LOSES_THE_HOST and finding.grade > Grade.HINTS)
    if whole or (cause.family in _OF_ONE_HOST and _all_others_wait(case, ranks)):
        others = tuple(r for r in range(case.world) if r not in ranks)
        return replace(finding, subject=replace(subject, ranks=ranks), victims=finding.victims or others)
    return replace(finding, subject=replace(subject, candidates=ranks)) if cause.family in _OF_ONE_HOST else finding


def _all_others_wait(case: Case, ranks: tuple[int, ...]) -> bool:
    """Whether every rank but these timed out in one collective, and none of these did."""
    from whichrank.timeline.collectives.stuck import standings

    standing = standings(case)
    return standing is not None and set(standing.waiting) == set(range(case.world)).difference(ranks)


def _with_host_of_ranks(case: Case, finding: Finding) -> Finding:
    """The hosts of the ranks that are meant: where to look. What the program does wrong is not to be found there."""
    subject, cause = finding.subject, causes().get(finding.cause)
    if cause is None or cause.family == "code-collective" or not subject.ranks or subject.hosts:
        return finding
    hosts = {case.people.host_of(rank) for rank in subject.ranks}
    known = sorted(host for host in hosts if host is not None and host != "localhost")
    return replace(finding, subject=replace(subject, hosts=tuple(known))) if len(known) == len(hosts) else finding


def _on_the_only_host(case: Case, finding: Finding) -> Finding:
    """The host that all ranks are on, for what happens within one machine."""
    subject, cause = finding.subject, causes().get(finding.cause)
    if cause is None or cause.family not in _OF_A_MACHINE or subject != Subject(code=subject.code):
        return finding
    if len(case.people.by_rank) < 2:  # a line of one process is a hint, and accuses no host
        return finding
    hosts = hosts_spoken_of(case)
    return replace(finding, subject=replace(subject, hosts=tuple(hosts))) if len(hosts) == 1 else finding


def _called(case: Case, finding: Finding) -> Finding:
    """Hosts by their names, where the finding has their addresses."""
    hosts = tuple(dict.fromkeys(case.host_names.get(host, host) for host in finding.subject.hosts))
    return (
        finding if hosts == finding.subject.hosts else replace(finding, subject=replace(finding.subject, hosts=hosts))
    )


def _failed_themselves(case: Case) -> tuple[int, ...]:
    """The ranks of which NCCL says that a call of their own failed, where all others only lost a peer."""
    said = {e.rank: e.text for e in case.events(NcclError) if e.rank is not None}
    lost = {rank for rank, text in said.items() if _REMOTE in text}
    own = said.keys() - lost
    return tuple(sorted(own)) if lost and len(own) < case.world and len(said) == case.world else ()


def _of_whom(case: Case, finding: Finding) -> Finding:
    subject = finding.subject
    cause = causes().get(finding.cause)
    if subject.ranks or subject.candidates or cause is None or cause.family not in _OF_ONE_RANK:
        return finding
    if finding.category not in ("hang", "crash") or cause.role in ("generic", "ending") or len(case.first_to_fail) != 1:
        return finding
    (rank,) = case.first_to_fail
    host = case.people.host_of(rank)
    hosts = set(subject.hosts) | {gpu.host for gpu in subject.gpus} | {ref.host for ref in finding.evidence if ref.host}
    if hosts and host is not None and host not in hosts and "localhost" not in (host, *hosts):
        return finding
    others = tuple(r for r in range(case.world) if r != rank)
    return replace(finding, subject=replace(subject, ranks=(rank,)), victims=finding.victims or others)


def _observed(case: Case, finding: Finding) -> Finding:
    """A rank that is alive and does not come makes the others hang, also where its message is that of a crash."""
    cause = causes().get(finding.cause)
    spoils = cause is not None and cause.family in _SPOILS and finding.category in ("hang", "crash")
    if spoils and said_category(case) == "corruption":
        return replace(finding, category="corruption")
    if finding.category != "crash" or not finding.subject.ranks:
        return finding
    from whichrank.timeline.job_state.deaths import deaths
    from whichrank.timeline.job_state.statements import TIMED_OUT

    timed_out = [e for e in case.events(*TIMED_OUT) if e.rank is not None and e.rank not in finding.subject.ranks]
    if len(timed_out) < 2:
        return finding
    ends = cause is None or cause.family in _ENDS_A_PROCESS or finding.cause in _KILLS
    if ends and finding.cause not in _LEAVES_WAITING:
        return finding
    ended = [d.sign for d in deaths(case) if d.sign.rank in finding.subject.ranks]
    ended_before = any(_before(sign, timed_out) for sign in ended)
    raised = [*(e for e in case.events(Traceback) if not e.thread), *case.events(NativeCrash, CudaError)]
    by_itself = any(e.rank in finding.subject.ranks for e in raised)
    return finding if ended_before or by_itself else replace(finding, category="hang")


def _before(end: Statement, waited: Sequence[Event]) -> bool:
    """Whether a rank ended before the others gave up: by the clock, else by the lines of one output."""
    times = [e.time_ns for e in waited if e.time_ns is not None]
    if end.time_ns is not None and times:
        return end.time_ns < min(times)
    lines = [e.line for e in waited if e.ref.source == end.ref.source]
    return end.event is None or not lines or end.event.line < min(lines)


def _tries_again(case: Case, rank: int) -> bool:
    """Whether a rank stands in the loop in which the exception was raised that it handles: it tries again."""
    told, activity = case.handling.get(rank), case.activities.get(rank)
    if told is None or activity is None or activity.place is None or activity.doing == "waiting":
        return False
    raised, place = told[0].frame, activity.place
    if (raised.file, raised.function) != (place.file, place.function):
        return False
    return any(loop.holds(raised.line) and loop.holds(place.line) for loop in case.outline.loops.get(place.file, ()))


def _waits_for_a_lock(case: Case, finding: Finding) -> Finding:
    """A rank that is stuck in a loop in which it tries again to create a file that is there waits for who made it."""
    cause = causes().get(finding.cause)
    if cause is None or cause.family != "slow-rank" or finding.category != "hang" or len(finding.subject.ranks) != 1:
        return finding
    (rank,) = finding.subject.ranks
    if not _tries_again(case, rank) or case.handling[rank][0].type not in _HELD:
        return finding
    error, ref = case.handling[rank]
    raised = CodePlace(error.frame.file, error.frame.line, error.frame.function, rank)
    return replace(
        finding,
        cause="stale-lock-or-store",
        message=f"{finding.message[:-1]}; it tries again and again, with {error.type} at {raised}: {error.text}.",
        evidence=(ref, *finding.evidence),
        fix=(
            "Look who made that file: a job that was killed leaves its lock behind. Remove it if nobody holds it.",
            "Use a lock that ends with its process (flock), or write the process into it and check whether it lives.",
        ),
    )


def _while_handling(case: Case, finding: Finding) -> Finding:
    """A rank that went another way while it handled an exception went there because of it."""
    cause = causes().get(finding.cause)
    if cause is None or cause.family != "code-collective" or finding.category != "hang":
        return finding
    handling = {rank: told for rank, told in case.handling.items() if told[0].type not in _OF_THE_LOOP}
    meant = finding.subject.ranks or tuple(rank for rank in finding.subject.candidates if rank in handling)
    if not meant or not handling.keys() >= set(meant) or len(handling) * 2 > max(case.world, 2):
        return finding
    if any(_tries_again(case, rank) for rank in meant):
        return finding
    error, ref = handling[meant[0]]
    raised = CodePlace(error.frame.file, error.frame.line, error.frame.function, meant[0])
    return replace(
        finding,
        cause=_RAISED,
        subject=replace(finding.subject, ranks=meant, candidates=(), code=(raised, *finding.subject.code)),
        message=f"{finding.message[:-1]}; rank {meant[0]} was handling {error.type}, raised at {raised}.",
        evidence=(ref, *finding.evidence),
        fix=(
            f"Fix the {error.type} of rank {meant[0]}: it left the common path there.",
            "Don't communicate in except, finally or __exit__, where the other ranks don't come.",
        ),
    )
